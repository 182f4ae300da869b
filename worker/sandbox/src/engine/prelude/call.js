// Runs a tool, and tells how it ended.
export default function (native, kit) {
  const { apply, deepFreeze, describe, hasOwn, isOutOfMemory, messageOf, parse, state, stringify, write } = kit;

  const finishFailed = (kind, description) => native.finish(false, write({ __proto__: null, kind, ...description }));
  const tooLarge = (what) =>
    finishFailed("tooLarge", {
      message:
        "the result is " + what + ", and a call may return " + state.limits.resultBytesMax + " bytes: return less, or write it to " +
        "a file of the workspace",
    });
  const run = async (name, inputJson, contextJson) => {
    let value;
    try {
      const tools = globalThis.tools;
      const tool = typeof tools === "object" && tools !== null && hasOwn(tools, name) ? tools[name] : undefined;
      const handler = tool === undefined || tool === null ? undefined : tool.handler;
      if (typeof handler !== "function") {
        finishFailed("toolNotFound", { message: "the plugin registers no tool " + name });
        return;
      }
      value = await apply(handler, tool, [parse(inputJson), deepFreeze(parse(contextJson))]);
    } catch (error) {
      native.reading(true);
      const described = describe(error);
      native.reading(false);
      finishFailed("thrown", described);
      return;
    }
    // A result that is far too large isn't written down first.
    const { resultBytesMax } = state.limits;
    if (typeof value === "string" && value.length > resultBytesMax) {
      tooLarge("text of " + value.length + " characters");
      return;
    }
    let json;
    try {
      json = stringify(value);
    } catch (error) {
      // Writing it down is what used up the memory.
      if (isOutOfMemory(error)) tooLarge("more than fits into the call's memory as JSON");
      else finishFailed("unserializable", { message: "the returned value isn't plain JSON: " + messageOf(error, 1) });
      return;
    }
    if (json !== undefined && json.length > resultBytesMax) tooLarge("JSON of " + json.length + " characters");
    else native.finish(true, json ?? "null");
  };
  const echo = (input, context) => context && input;
  Object.assign(kit, {
    describeAsJson: (error) => write(describe(error)),
    // The promise is rejected only where not even the call's end could be told for want of memory.
    prepare: (resultBytesMax, hostCallsMax, hostCallsPendingMax, hostCallBytesMax, timersMax) => {
      state.limits = { __proto__: null, resultBytesMax, hostCallsMax, hostCallsPendingMax, hostCallBytesMax, timersMax };
    },
    // Does what a call does, with nothing of a plugin's: see the engine's `rehearse`.
    rehearse: async (json) => {
      const value = apply(echo, undefined, [parse(json), deepFreeze(parse(json))]);
      await 0;
      native.finish(true, write(value));
    },
    begin: (name, inputJson, contextJson) => {
      state.loading = false;
      return run(name, inputJson, contextJson);
    },
  });
}
