// SPDX-License-Identifier: Apache-2.0

export interface Broker {
  connectionString(name: string): string;
  control(name: string, method: string, path: string, body?: unknown): Promise<any>;
  stop(): void;
}

export function startBroker(config: string): Promise<Broker>;
