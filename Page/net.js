// Requests to rxd. The token came in the fragment of the page's address; it is kept for this tab only, and sent as a header,
// so that it is in no log and no history.

const kept = "rxd token";
let token = decodeURIComponent(location.hash.slice(1));
if (token) {
  sessionStorage.setItem(kept, token);
  history.replaceState(null, "", location.pathname + location.search);
} else {
  token = sessionStorage.getItem(kept) ?? "";
}

export const hasToken = () => token !== "";

export function setToken(text) {
  token = text;
  sessionStorage.setItem(kept, token);
}

/** An answer with another status than 200. */
export class Refusal extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function request(path, options = {}) {
  const response = await fetch(path, {
    ...options, cache: "no-store", headers: { Authorization: `Bearer ${token}` },
  });
  if (response.ok) return response;
  let message = `status ${response.status}`;
  try {
    message = (await response.json()).error ?? message;
  } catch {
    // The status says it all.
  }
  throw new Refusal(response.status, message);
}

/** A document. `body`: a text to post. */
export async function ask(path, query = {}, body = null) {
  const response = await request(`${path}?${new URLSearchParams(query)}`, body === null ? {} : { method: "POST", body });
  return response.json();
}

/** Calls `take` with each line of an answer as it comes; returns when the answer ends. */
async function lines(path, query, signal, take) {
  const response = await request(`${path}?${new URLSearchParams(query)}`, { signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n");
    rest = parts.pop();
    for (const line of parts) if (line) take(line);
  }
}

/** The lines of a tap: `take` gets the object and its text. */
export const tap = (query, signal, take) => lines("tap", query, signal, (line) => take(JSON.parse(line), line));

/** The data of server-sent events. */
export const feed = (query, signal, take) =>
  lines("ui/feed", query, signal, (line) => {
    if (line.startsWith("data: ")) take(JSON.parse(line.slice(6)));
  });
