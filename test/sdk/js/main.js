// SPDX-License-Identifier: Apache-2.0

// Scenarios with the JavaScript SDK. Arguments: the names of those to run; none means all.

import "./messages.js";
import "./settle.js";
import "./schedule.js";
import "./locks.js";
import "./sessions.js";
import "./topics.js";
import "./endpoints.js";
import "./faults.js";
import { run } from "./harness.js";

process.on("unhandledRejection", (err) => {
  console.error("unhandled rejection:", err);
});
await run(process.argv.slice(2));
