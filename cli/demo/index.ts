// What `toolfleet demo` shows besides the examples: one tool that works, and some that fail.

const none = { type: "object", properties: {} };

globalThis.tools.add = {
  description: "Add two numbers.",
  parameters: { type: "object", properties: { a: { type: "number" }, b: { type: "number" } }, required: ["a", "b"] },
  handler: (input: { a: number; b: number }) => input.a + input.b,
};

globalThis.tools.throw_an_error = {
  description: "Throw an error, as a tool does that can't do what it was asked.",
  parameters: none,
  handler: () => {
    throw new RangeError("there is no such day");
  },
};

globalThis.tools.recurse_for_ever = {
  description: "Call itself without end.",
  parameters: none,
  handler: () => {
    const deeper = (n: number): number => deeper(n + 1) + 1;
    return deeper(0);
  },
};

globalThis.tools.use_all_memory = {
  description: "Keep ever more in memory.",
  parameters: none,
  handler: () => {
    const kept: unknown[] = [];
    for (;;) kept.push(new Array(1000).fill(kept.length));
  },
};

globalThis.tools.wait_for_nothing = {
  description: "Await a promise that nothing settles.",
  parameters: none,
  handler: () => new Promise(() => {}),
};
