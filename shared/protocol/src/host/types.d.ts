type BinaryEncoding = "hex" | "base64" | "base64url";
type TextEncoding = "utf8" | "base64";
type HashAlgorithm = "sha256" | "sha384" | "sha512";

interface FetchRequest {
  /** http: or https:, to a host that manifest.egress lists. */
  url: string;
  /** GET unless said. */
  method?: string;
  headers?: Record<string, string>;
  body?: string;
  /** How `body` is encoded, and how the answer's body shall be; utf8 unless said. */
  bodyEncoding?: TextEncoding;
  /** At most what is left of the call's own time. */
  timeoutMs?: number;
}

interface FetchResponse {
  status: number;
  /** Names in lower case; several of one name joined by ", ". */
  headers: Record<string, string>;
  body: string;
  /** Where the answer came from, after redirects. */
  url: string;
}

interface HashOptions {
  algorithm: HashAlgorithm;
  data: string;
  /** utf8 unless said. */
  dataEncoding?: TextEncoding;
  /** hex unless said. */
  encoding?: BinaryEncoding;
}

interface HmacOptions {
  algorithm: HashAlgorithm;
  key: string;
  /** utf8 unless said. */
  keyEncoding?: TextEncoding;
  data: string;
  /** utf8 unless said. */
  dataEncoding?: TextEncoding;
  /** hex unless said. */
  encoding?: BinaryEncoding;
}

interface MessagesOptions {
  /** 1 to 200; 50 unless said. */
  limit?: number;
  /** Only messages before the one of this id. */
  before?: string;
}

interface SessionMessage {
  id: string;
  role: "user" | "assistant" | "tool" | "system";
  text: string;
  /** Unix time in milliseconds. */
  atMs: number;
  /** The plugin that posted it, if one did. */
  plugin?: string;
  data?: Record<string, unknown>;
}

interface PostMessage {
  text: string;
  /** Anything that the platform's user interface shall know; at most 16 kB of JSON. */
  data?: Record<string, unknown>;
}

interface WorkspacePath {
  path: string;
  /** The account's shared workspace instead of the agent's own. */
  shared?: boolean;
}

interface WorkspaceReadOptions extends WorkspacePath {
  /** utf8 unless said. */
  encoding?: TextEncoding;
}

interface WorkspaceListOptions {
  /** Only paths that start with it. */
  prefix?: string;
  /** Only paths after it: the last page's `next`. */
  after?: string;
  /** 1 to 1,000; 1,000 unless said. */
  limit?: number;
  /** The account's shared workspace instead of the agent's own. */
  shared?: boolean;
}

interface WorkspaceWriteOptions extends WorkspacePath {
  content: string;
  /** utf8 unless said. */
  encoding?: TextEncoding;
  /** Only over the file of this etag; null: only where there is no file. */
  etag?: string | null;
}

interface WorkspaceFile {
  path: string;
  size: number;
  etag: string;
  /** Unix time in milliseconds. */
  modifiedAtMs: number;
}

interface WorkspaceContent extends WorkspaceFile {
  content: string;
}

interface WorkspaceListing {
  files: WorkspaceFile[];
  /** There are more: give it as `after`. */
  next?: string;
}
