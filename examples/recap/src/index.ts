import { findActions } from "./actions";
import { asMessage } from "./message";

// One call looks at so many messages: enough for an afternoon, few enough to read within the time limit.
const MESSAGES_MAX = 200;

globalThis.tools.post_recap = {
  description:
    "Read the latest messages of this conversation, collect what somebody promised to do, and post it as one message. " +
    "Use when the user asks for a recap, a summary of to-dos or who does what.",
  parameters: {
    type: "object",
    properties: {
      messages: { type: "integer", minimum: 1, maximum: MESSAGES_MAX, description: "How many to look at; 50 unless said" },
    },
  },
  handler: async (input: { messages?: number }, context) => {
    // Posting speaks in the conversation: not something that a timer, an event or another agent shall set off.
    if (["schedule", "event", "agent"].includes(context.initiator.kind)) {
      throw new Error("a recap is only posted when a person asks for it");
    }
    const limit = input.messages ?? 50;
    if (!Number.isInteger(limit) || limit < 1 || limit > MESSAGES_MAX) {
      throw new RangeError(`messages must be a whole number from 1 to ${MESSAGES_MAX}`);
    }

    const messages = await host.session!.messages({ limit });
    const actions = findActions(messages);
    if (actions.length === 0) return { posted: false, lookedAt: messages.length };

    const posted = await host.session!.post({ text: asMessage(actions), data: { actions: actions.length } });
    // Short: everything returned lands in the model's context, and the message itself is in the conversation already.
    return { posted: true, message: posted.id, actions: actions.length, lookedAt: messages.length };
  },
};
