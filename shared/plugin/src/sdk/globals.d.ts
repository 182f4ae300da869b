/** Every tool of the plugin: `globalThis.tools.NAME = { … }`. A name matches `^[a-z][a-z0-9_]{0,63}$`. */
declare var tools: Record<string, ToolDefinition>;

/** What the plugin needs beside its tools: `globalThis.manifest = { egress: ["api.example.com"] }`. */
declare var manifest: PluginManifest;

interface ToolDefinition {
  /** What the model reads to decide when to call the tool: what it does and when to use it. */
  description: string;
  /** JSON Schema of the input; `{ type: "object", properties: {} }` where there is none. */
  parameters: Record<string, unknown>;
  /** `input` is the model's JSON, not validated. What is returned must be JSON; `undefined` becomes `null`. */
  handler: (input: any, context: ToolCallContext) => unknown | Promise<unknown>;
  /** Stays in the agent's list when it has more tools than its model takes. At most 3 of a plugin. */
  alwaysListed?: boolean;
  /** Is only found with `search_tools`. Not together with `alwaysListed`. */
  deferred?: boolean;
}

/** Frozen. Set by the platform, never by the model. */
interface ToolCallContext {
  callId: string;
  initiator: TurnInitiator;
}

/** What started the turn. */
interface TurnInitiator {
  kind: "user" | "channelSender" | "schedule" | "event" | "agent" | "platform";
  /** Every input came from a signed-in user or a verified contact. */
  isVerifiedPerson: boolean;
}

interface PluginManifest {
  /** Hosts that host.fetch may reach: `api.example.com`, or `*.example.com` for all below it. */
  egress?: string[];
}

// The engine's globals. There is no DOM and no Node.js.

interface Console {
  debug(...values: unknown[]): void;
  log(...values: unknown[]): void;
  info(...values: unknown[]): void;
  warn(...values: unknown[]): void;
  error(...values: unknown[]): void;
}
/** Goes to host.log. */
declare var console: Console;

declare function setTimeout(callback: (...values: any[]) => void, delayMs?: number, ...values: any[]): number;
declare function clearTimeout(timer: number | undefined): void;
declare function setInterval(callback: (...values: any[]) => void, delayMs?: number, ...values: any[]): number;
declare function clearInterval(timer: number | undefined): void;
declare function queueMicrotask(callback: () => void): void;
declare function structuredClone<T>(value: T): T;
/** Bytes as characters to base64. */
declare function btoa(data: string): string;
/** Base64 to bytes as characters. */
declare function atob(data: string): string;

interface URL {
  href: string;
  readonly origin: string;
  protocol: string;
  username: string;
  password: string;
  host: string;
  hostname: string;
  port: string;
  pathname: string;
  search: string;
  readonly searchParams: URLSearchParams;
  hash: string;
  toString(): string;
  toJSON(): string;
}
declare var URL: {
  prototype: URL;
  new (url: string | URL, base?: string | URL): URL;
  canParse(url: string | URL, base?: string | URL): boolean;
};

interface URLSearchParams {
  readonly size: number;
  append(name: string, value: string): void;
  delete(name: string, value?: string): void;
  get(name: string): string | null;
  getAll(name: string): string[];
  has(name: string, value?: string): boolean;
  set(name: string, value: string): void;
  sort(): void;
  toString(): string;
  forEach(callback: (value: string, name: string, parent: URLSearchParams) => void): void;
  entries(): IterableIterator<[string, string]>;
  keys(): IterableIterator<string>;
  values(): IterableIterator<string>;
  [Symbol.iterator](): IterableIterator<[string, string]>;
}
declare var URLSearchParams: {
  prototype: URLSearchParams;
  new (init?: string | [string, string][] | Record<string, string> | URLSearchParams): URLSearchParams;
};

interface TextEncoder {
  readonly encoding: string;
  encode(text?: string): Uint8Array;
}
declare var TextEncoder: { prototype: TextEncoder; new (): TextEncoder };

interface TextDecoder {
  readonly encoding: string;
  readonly fatal: boolean;
  readonly ignoreBOM: boolean;
  decode(bytes?: ArrayBuffer | ArrayBufferView): string;
}
declare var TextDecoder: {
  prototype: TextDecoder;
  new (label?: string, options?: { fatal?: boolean; ignoreBOM?: boolean }): TextDecoder;
};

interface AbortSignal {
  readonly aborted: boolean;
  readonly reason: any;
  throwIfAborted(): void;
  addEventListener(type: "abort", listener: () => void): void;
  removeEventListener(type: "abort", listener: () => void): void;
}
interface AbortController {
  readonly signal: AbortSignal;
  abort(reason?: any): void;
}
declare var AbortController: { prototype: AbortController; new (): AbortController };

interface Crypto {
  getRandomValues<T extends ArrayBufferView>(array: T): T;
  randomUUID(): string;
}
declare var crypto: Crypto;

interface Performance {
  now(): number;
}
declare var performance: Performance;
