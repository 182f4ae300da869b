// What was thrown, as text.
export default function (native, kit) {
  const { getOwnPropertyDescriptor, hasOwn, isArray, slice, stringify, text } = kit;
  const NAME_MAX = 200, MESSAGE_MAX = 4000, STACK_MAX = 8000, CAUSES_MAX = 5;

  const field = (value, name) => {
    try {
      const found = value[name];
      return typeof found === "string" ? found : undefined;
    } catch {
      return undefined;
    }
  };
  const asJson = (value) => {
    try {
      return stringify(value);
    } catch {
      return undefined;
    }
  };
  // An own property's value, without running a getter.
  const own = (value, name) => {
    const descriptor = getOwnPropertyDescriptor(value, name);
    return descriptor !== undefined && hasOwn(descriptor, "value") ? descriptor.value : undefined;
  };
  const messageOf = (error, depth) => {
    if (error === null) return "null was thrown";
    if (error === undefined) return "undefined was thrown";
    if (typeof error === "string") return error;
    if (typeof error !== "object" && typeof error !== "function") {
      return typeof error === "symbol" ? "a symbol was thrown" : text(error);
    }
    let message = field(error, "message");
    if (message === undefined || message === "") {
      message = field(error, "name") ?? asJson(error);
      if (message === undefined || message === "{}") message = "an object without a message was thrown";
    }
    if (depth > 0) {
      try {
        const cause = own(error, "cause");
        if (cause !== undefined) message += " (cause: " + messageOf(cause, depth - 1) + ")";
        const errors = own(error, "errors");
        if (isArray(errors)) {
          for (let i = 0; i < errors.length && i < CAUSES_MAX; i++) {
            message += " [" + (i + 1) + "] " + messageOf(errors[i], depth - 1);
          }
        }
      } catch {
        // A Proxy that throws when looked at: its message will do.
      }
    }
    return message;
  };
  const describe = (error) => {
    const isObject = typeof error === "object" && error !== null;
    const stack = isObject ? field(error, "stack") : undefined;
    return {
      __proto__: null,
      name: isObject ? slice(field(error, "name") ?? "Error", 0, NAME_MAX) : undefined,
      message: slice(messageOf(error, CAUSES_MAX), 0, MESSAGE_MAX),
      stack: stack === undefined || stack === "" ? undefined : slice(stack, 0, STACK_MAX),
    };
  };
  // With no memory left for an error the engine throws `null`, which a plugin may throw too.
  const isOutOfMemory = (error) =>
    native.wasRefusedMemory() && (error === null || field(error, "message") === "out of memory");

  Object.assign(kit, { field, asJson, messageOf, describe, isOutOfMemory });
}
