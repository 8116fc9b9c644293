// SPDX-License-Identifier: Apache-2.0

import { fileURLToPath } from "node:url";
import { startBroker as start } from "./broker.mjs";

const program = fileURLToPath(new URL(process.platform === "win32" ? "overdue.exe" : "overdue", import.meta.url));

// The fixture, with the program of this package.
export const startBroker = (config) => start(config, program);
