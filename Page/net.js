// Requests to rxd. A link of rxd has given this browser the cookie of a session. Browsers send cookies to all ports of a machine, so
// requests also have the seal of the session: rxd gives it out once, and the page keeps it for its origin, for all of its tabs.

// Behind a proxy several processes may have paths of one origin: at "/" it is "rxd seal", at "/a/" "rxd seal/a".
const kept = `rxd seal${new URL(".", import.meta.url).pathname.slice(0, -1)}`;
let seal = "";
seal = keptSeal();

function keptSeal() {
  try {
    return localStorage.getItem(kept) ?? "";
  } catch {
    // The browser keeps nothing.
    return seal;
  }
}

/** Whether this page has been in a session. */
export const hasSession = () => seal !== "";

/**
 * Takes the seal of a session that another tab has, or that nobody has yet; with a token a session of its own. False: there is none; `asksForToken`
 * says whether a token opens one.
 */
export async function join(token = null) {
  if (token === null && takeKept()) return true;
  const headers = token === null ? {} : { Authorization: `Bearer ${token}` };
  const response = await fetch("session", { method: "POST", cache: "no-store", headers });
  asksForToken = (response.headers.get("WWW-Authenticate") ?? "").startsWith("Bearer ");
  // No session, or another page has its seal.
  if (response.status === 401 || response.status === 409) return takeKept();
  if (!response.ok) throw await refusal(response);
  seal = (await response.json()).seal;
  try {
    localStorage.setItem(kept, seal);
  } catch {
    // It lasts as long as this page.
  }
  return true;
}

export let asksForToken = false;

let joining = null;

/** Joins for a request that was refused with the seal `sent`. Several requests that are refused at the same time join once. */
function joinFor(sent) {
  if (sent !== seal) return true;
  joining ??= join().finally(() => { joining = null; });
  return joining;
}

/** Whether another tab has joined another session meanwhile. */
function takeKept() {
  const known = keptSeal();
  if (known === seal) return false;
  seal = known;
  return seal !== "";
}

/** An answer with another status than 200. */
export class Refusal extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** The refusal that an answer is. */
async function refusal(response) {
  let message = `status ${response.status}`;
  try {
    message = (await response.json()).error ?? message;
  } catch {
    // The status says it all.
  }
  return new Refusal(response.status, message);
}

async function request(path, options = {}) {
  if (!hasSession()) await joinFor("");
  const send = (seal) => fetch(path, { ...options, cache: "no-store", headers: { "X-Rxd-Seal": seal } });
  const sent = seal;
  let response = await send(sent);
  if (response.status === 401 && await joinFor(sent)) response = await send(seal);
  if (response.ok) return response;
  throw await refusal(response);
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
