import { fileName } from "./file_name";

// Files of one title: note.md, note-2.md, … More than that is a model in a loop.
const SAME_TITLE_MAX = 20;

globalThis.tools.save_note_safely = {
  description:
    "Save a short note as a new file in the agent's workspace under notes/. Never overwrites an older note. " +
    "Use when the user wants to keep something for later.",
  parameters: {
    type: "object",
    properties: {
      title: { type: "string", description: "A few words; the file is named after it" },
      text: { type: "string", description: "The note itself, in Markdown" },
    },
    required: ["title", "text"],
  },
  handler: async (input: { title: string; text: string }) => {
    // The input comes from a model and is not validated. What is thrown goes back to it, so say what would be right.
    if (typeof input.title !== "string") throw new TypeError("title must be a text");
    if (typeof input.text !== "string" || input.text.trim() === "") throw new TypeError("text must be a non-empty text");

    const name = fileName(input.title);
    for (let number = 1; number <= SAME_TITLE_MAX; number++) {
      const path = number === 1 ? `notes/${name}.md` : `notes/${name}-${number}.md`;
      try {
        // `etag: null` writes only where there is no file yet: two calls at once can't overwrite each other either.
        await host.workspace!.write({ path, content: input.text, etag: null });
        return { saved: path };
      } catch (error) {
        const taken = error instanceof Error && error.name === "ConflictError";
        if (!taken) throw error;
      }
    }
    throw new Error(`there are already ${SAME_TITLE_MAX} notes of this title: choose another one`);
  },
};
