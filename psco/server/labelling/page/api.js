// Requests to the server. Addresses are relative: they carry the token in their path.

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function request(path, options = {}) {
  let answer;
  try {
    answer = await fetch(path, { cache: "no-store", ...options });
  } catch {
    throw new Refused(0, "psco does not answer; is it still running in the terminal?");
  }
  if (answer.ok) return answer;
  const text = await answer.text();
  let message = text;
  try {
    message = JSON.parse(text).error ?? text;
  } catch {
    // An answer that is not ours, such as from a proxy; its text says most.
  }
  throw new Refused(answer.status, message.trim() || `the request failed (${answer.status})`);
}

export async function get(path) {
  return (await request(`api/${path}`)).json();
}

export async function post(path, body) {
  return (await request(`api/${path}`, json(body))).json();
}

/** Send the bytes of a file. */
export async function send(path, file) {
  return (await request(`api/${path}`, { method: "POST", body: file })).json();
}

/** Return the state, or null if it is still at the revision `since`. */
export async function fetchState(since) {
  const answer = await request(`api/state?since=${since}`);
  return answer.status === 204 ? null : readFrame(await answer.arrayBuffer());
}

/** Make a change that the page decided on at `revision`; return the new state. */
export async function act(revision, change) {
  const answer = await request("api/act", json({ revision, ...change }));
  return readFrame(await answer.arrayBuffer());
}

/** Return x and y of all pictures in turn, in [−1, 1]; null as long as they are not computed. */
export async function fetchMap(kind) {
  const answer = await request(`api/map?kind=${kind}`);
  return answer.status === 204 ? null : new Float32Array(await answer.arrayBuffer());
}

export const thumbnail = (number) => `thumbnails/${number}`;
export const picture = (number) => `pictures/${number}`;

function json(body) {
  return {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  };
}

/**
 * Decode a state: the length of a JSON head in 4 bytes, the head, then one array after the other
 * over all pictures. See psco/server/labelling/frames.py.
 */
export function readFrame(buffer) {
  const length = new DataView(buffer).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  const count = head.pictures;
  let offset = 4 + length;
  const take = (Type) => {
    const array = new Type(buffer, offset, count);
    offset += array.byteLength;
    return array;
  };
  return {
    ...head,
    labels: take(Int16Array), // a class, or NONE, NONE_OF_THESE, NOT_USABLE
    predicted: take(Int16Array), // a class, or NONE
    chance: take(Uint8Array), // per cent
    flags: take(Uint8Array), // UNKNOWN, CONFIRMED, BROKEN
  };
}
