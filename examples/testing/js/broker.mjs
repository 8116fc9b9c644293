// SPDX-License-Identifier: Apache-2.0

import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";

// The broker at BROKER_ADDRESS, such as a container. Without that variable: a process on any free port.
export async function startBroker(config, program = "overdue") {
  let address = process.env.BROKER_ADDRESS; // host:port
  let overdue;
  if (address) {
    const tooLate = AbortSignal.timeout(60_000);
    while (!(await fetch(`http://${address}/health`).catch(() => undefined))?.ok) await sleep(100, undefined, { signal: tooLate });
  } else {
    overdue = spawn(program, ["broker", "--broker-listen", "127.0.0.1:0", "--broker-emulator-config", config, "--broker-auto-create=false",
      "--broker-isolate", "--broker-expiry", "eager", "--log-level", "warn", "--stop-with-stdin"], { stdio: ["pipe", "pipe", "inherit"] });
    for await (const line of createInterface({ input: overdue.stdout })) {
      address = /^Endpoint=sb:\/\/([^;]+)/.exec(line)?.[1];
      if (address) break;
    }
    if (!address) throw new Error("overdue broker did not start");
  }
  return {
    // Each name, such as that of a test, is a namespace of its own with the queues of the configuration.
    connectionString: (name) => `Endpoint=sb://${address};SharedAccessKeyName=${name};SharedAccessKey=any;UseDevelopmentEmulator=true`,
    // Reads or changes the state of a namespace over HTTP.
    async control(name, method, path, body) {
      const url = `http://${address}/_overdue/${path}?namespace=${encodeURIComponent(name)}`;
      const response = await fetch(url, { method, body: body && JSON.stringify(body) });
      const text = await response.text();
      if (!response.ok) throw new Error(`${path}: ${response.status} ${text}`);
      return text ? JSON.parse(text) : undefined;
    },
    stop: () => overdue?.stdin.end(), // it also ends when this process does
  };
}
