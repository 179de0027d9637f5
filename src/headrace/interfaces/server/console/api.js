// Requests to the server, and what it sends as it happens.

/** An error as the server has it: `code`, `primary`, `detail`, `hint`, `span`. */
export class ServerError extends Error {
  constructor(status, error) {
    super(error.primary);
    this.status = status;
    this.error = error;
  }
}

const UNREACHABLE = {
  code: "unavailable",
  primary: "the server cannot be reached",
  detail: null,
  hint: "It may be starting, or have been stopped.",
  span: null,
};
const RETRY = [500, 1000, 2000, 5000, 10000];
const HIDDEN_SECONDS = 20;

let login = async () => false;

/** Set what asks the user for a token when the server wants one; it resolves to whether to go on. */
export function onUnauthorized(ask) {
  login = ask;
}

/** Ask, and return the response if it succeeded. */
async function ask(path, options) {
  for (;;) {
    let response;
    try {
      response = await fetch(path, { cache: "no-store", credentials: "same-origin", ...options });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new ServerError(0, UNREACHABLE);
    }
    if (response.ok) return response;
    const body = await response.json().catch(() => null);
    const error = body?.error ?? { ...UNREACHABLE, primary: `the server answered ${response.status}` };
    if (response.status !== 401 || !(await login(error))) throw new ServerError(response.status, error);
  }
}

/** Parse JSON; a whole number that a number of JavaScript cannot hold becomes its text. */
export function parsed(text) {
  if (!/\d{16}/.test(text)) return JSON.parse(text);
  return JSON.parse(text, (_key, value, context) => (
    typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(context?.source ?? "") ? context.source : value));
}

export async function get(path, query = {}, options = {}) {
  return parsed(await (await ask(path + queryText(query), options)).text());
}

export async function send(method, path, value, options = {}) {
  const body = value === undefined ? {} : { body: JSON.stringify(value), headers: { "Content-Type": "application/json" } };
  return parsed(await (await ask(path, { method, ...body, ...options })).text());
}

function queryText(query) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null);
  return given.length ? `?${new URLSearchParams(given)}` : "";
}

/**
 * Follow server-sent events until `stop` is called on what is returned.
 *
 * A connection that breaks is made again after the last event; one of a page that nobody has looked
 * at for a while is closed, and made again when somebody does. `on` has `event(kind, data)`, and
 * may have `state(text)`, `restart()` before events begin anew, and `error(error)` when there is an
 * end.
 */
export function listen(path, query, on) {
  const run = { stopped: false, abort: null, last: null, tries: 0 };
  let resume = null;
  let hiding = null;

  const visible = () => {
    clearTimeout(hiding);
    if (document.hidden) hiding = setTimeout(() => run.abort?.abort(), HIDDEN_SECONDS * 1000);
    else resume?.();
  };
  // A page that is left may be kept to be gone back to: it must not keep its connections.
  const left = () => run.abort?.abort();
  document.addEventListener("visibilitychange", visible);
  addEventListener("pagehide", left);
  addEventListener("pageshow", visible);

  const wait = (milliseconds) =>
    new Promise((resolve) => {
      const timer = milliseconds === null ? null : setTimeout(resolve, milliseconds);
      resume = () => {
        clearTimeout(timer);
        resolve();
      };
    });

  async function once() {
    run.abort = new AbortController();
    const headers = run.last === null ? {} : { "Last-Event-ID": run.last };
    if (run.last === null) on.restart?.();
    const response = await ask(path + queryText(query), { headers, signal: run.abort.signal });
    on.state?.("live");
    run.tries = 0;
    for await (const { kind, id, data } of events(response.body)) {
      if (id !== null) run.last = id;
      if (kind === "error") throw new ServerError(0, data.error);
      on.event(kind, data);
    }
  }

  async function all() {
    while (!run.stopped) {
      try {
        await once();
      } catch (error) {
        if (run.stopped) return;
        const failed = error instanceof ServerError ? error.error : null;
        if (failed !== null && failed.code === "conflict" && run.last !== null) {
          run.last = null;
          continue;
        }
        if (failed !== null && failed.code !== "unavailable" && failed.code !== "cancelled") {
          on.error?.(failed);
          return;
        }
      }
      if (run.stopped) return;
      on.state?.(document.hidden ? "paused" : "reconnecting");
      await wait(document.hidden ? null : RETRY[Math.min(run.tries, RETRY.length - 1)]);
      run.tries += 1;
    }
  }

  all();
  return {
    stop() {
      run.stopped = true;
      document.removeEventListener("visibilitychange", visible);
      removeEventListener("pagehide", left);
      removeEventListener("pageshow", visible);
      clearTimeout(hiding);
      run.abort?.abort();
      resume?.();
    },
  };
}

/** Yield the server-sent events of a body. */
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let left = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (left + value).split("\n\n");
    left = blocks.pop();
    for (const block of blocks) {
      const found = { kind: "message", id: null, data: null };
      for (const line of block.split("\n")) {
        const at = line.indexOf(": ");
        const name = line.slice(0, at);
        if (name === "event") found.kind = line.slice(at + 2);
        else if (name === "id") found.id = line.slice(at + 2);
        else if (name === "data") found.data = parsed(line.slice(at + 2));
      }
      if (found.data !== null) yield found;
    }
  }
}
