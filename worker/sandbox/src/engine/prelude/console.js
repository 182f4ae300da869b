// `console`, whose lines are those of `host.log`.
export default function (native, kit) {
  const { asJson, define, field, isError, list, slice, NativeString } = kit;
  // What the bridge would cut off anyway isn't taken across.
  const LINE_CHARS_MAX = 8192;

  const show = (value) => {
    if (typeof value === "string") return value;
    if (typeof value === "object" && value !== null) {
      const stack = isError(value) ? field(value, "stack") : undefined;
      if (stack !== undefined) return (field(value, "name") ?? "Error") + ": " + (field(value, "message") ?? "") + "\n" + stack;
      return asJson(value) ?? "[object]";
    }
    if (typeof value === "function") return "[function]";
    try {
      return NativeString(value);
    } catch {
      return "[?]";
    }
  };
  const cut = (text) => (text.length > LINE_CHARS_MAX ? slice(text, 0, LINE_CHARS_MAX) : text);
  const write = (level, values) => {
    let line = "";
    for (let i = 0; i < values.length && line.length < LINE_CHARS_MAX; i++) line += (i === 0 ? "" : " ") + cut(show(values[i]));
    native.log(level, cut(line), "");
  };
  const console = {};
  const levels = [["debug", 0], ["trace", 0], ["log", 1], ["info", 1], ["dir", 1], ["warn", 2], ["error", 3]];
  for (let i = 0; i < levels.length; i++) {
    const [name, level] = levels[i];
    console[name] = (...values) => write(level, values);
    define(console[name], "name", name);
  }
  console.assert = (holds, ...values) => {
    if (holds) return;
    const all = list();
    all[0] = "Assertion failed";
    for (let i = 0; i < values.length; i++) all[i + 1] = values[i];
    write(3, all);
  };
  define(globalThis, "console", console);

  kit.hostLog = (level) => (message, fields) => {
    const json = fields === undefined || fields === null ? "" : (asJson(fields) ?? "");
    native.log(level, cut(show(message)), json.length > LINE_CHARS_MAX ? '{"dropped":"fields over 8 kB"}' : json);
  };
}
