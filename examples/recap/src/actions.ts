/** Something that somebody said would be done. */
export interface Action {
  who: "user" | "assistant";
  what: string;
}

// "I'll send the offer", "We will meet on Friday", "TODO: book a room", "- [ ] book a room"
const PROMISE = /^(?:i'll|i will|we'll|we will|let me)\s+(.+)$/i;
const TODO = /^(?:[-*]\s*\[ \]|to-?do:)\s*(.+)$/i;

/** Every promise in the messages, in their order, each once. */
export function findActions(messages: SessionMessage[]): Action[] {
  const actions: Action[] = [];
  const seen = new Set<string>();
  for (const message of messages) {
    // Tools and the system promise nothing.
    if (message.role !== "user" && message.role !== "assistant") continue;
    // An earlier recap is no new promise.
    if (message.plugin !== undefined) continue;
    for (const sentence of sentences(message.text)) {
      const what = (PROMISE.exec(sentence) ?? TODO.exec(sentence))?.[1];
      if (what === undefined || seen.has(what.toLowerCase())) continue;
      seen.add(what.toLowerCase());
      actions.push({ who: message.role, what });
    }
  }
  return actions;
}

function sentences(text: string): string[] {
  return text
    .split(/(?<=[.!?])\s+|\n+/)
    .map((sentence) => sentence.trim().replace(/[.!]+$/, ""))
    .filter((sentence) => sentence !== "");
}
