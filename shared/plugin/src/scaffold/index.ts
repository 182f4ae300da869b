globalThis.tools.greet = {
  // The model reads this to decide when to call the tool: say what it does and when to use it.
  description: "Greet a person by name. Use when the user asks to greet somebody.",
  parameters: {
    type: "object",
    properties: { name: { type: "string", description: "Whom to greet" } },
    required: ["name"],
  },
  handler: async (input: { name: string }) => {
    // The input comes from a model and is not validated: check what you depend on.
    if (typeof input.name !== "string" || input.name.trim() === "") throw new Error("name must be a non-empty text");
    host.log.info("greeting", { name: input.name });
    return { greeting: `Hello, ${input.name.trim()}!` };
  },
};
