import type { Action } from "./actions";

/** The recap as people read it. */
export function asMessage(actions: Action[]): string {
  const lines = actions.map((action) => `- [ ] ${action.what} (${action.who})`);
  return ["What we agreed on:", ...lines].join("\n");
}
