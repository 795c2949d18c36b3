'use strict';

/** Why an answer is not there: what to tell, and how long to wait before asking again. */
class Problem extends Error {
  /**
   * @param {string} kind lost: nobody answers; refused: the server says why it does not; expired: list anew;
   *   paused: nobody looks.
   * @param {string} message one sentence for a person.
   * @param {number} [waitMs] asked for by the server.
   */
  constructor(kind, message, waitMs) {
    super(message);
    this.kind = kind;
    this.waitMs = waitMs;
  }

  /** What a refusal says: the message of its Status where there is one. */
  static async of(answer) {
    const status = await answer.json().catch(() => ({}));
    return Problem.ofStatus({ code: answer.status, ...status }, Number(answer.headers.get('Retry-After')) * 1000);
  }

  /** The same of a Status that came as an event. */
  static ofStatus(status, waitMs) {
    const kind = status.code === 410 ? 'expired' : 'refused';
    return new Problem(kind, String(status.message || `The server answered ${status.code}.`), waitMs || undefined);
  }

  /** Whatever was thrown, as a problem: fetch throws when nobody answers, or not in time. */
  static from(error) {
    return error instanceof Problem ? error : new Problem('lost', 'The server does not answer.');
  }
}

/** Milliseconds within which an answer must have begun. */
const ANSWER_MS = 4000;

/** An answer in JSON; throws a Problem otherwise. */
async function getJson(url) {
  try {
    const answer = await fetch(url, { signal: AbortSignal.timeout(ANSWER_MS), cache: 'no-store' });
    if (!answer.ok) throw await Problem.of(answer);
    return await answer.json();
  } catch (error) {
    throw Problem.from(error);
  }
}

/**
 * Follows a collection: lists it, watches from there, and begins anew when that is over.
 *
 * What it knows is live only while the watch is open and the server has lately answered 200: every few seconds it is
 * asked, because a frozen server leaves its connections open, and a watch is not told at once that the server has lost
 * the cluster. While the page is hidden nothing is followed: a browser keeps six connections to a server, for all tabs.
 */
class Follower {
  static CHECK_MS = 3000;
  static FIRST_WAIT_MS = 250;
  static LONGEST_WAIT_MS = 5000;

  /** Name to object, as last told. */
  items = new Map();
  /** Whether the items were ever listed. */
  listed = false;
  live = false;
  /** Why it is not live; null before anything failed. */
  problem = null;
  /** When the server last vouched for the items. */
  provenAt = null;

  #url;
  #changed;
  #version = '';
  #stop = new AbortController();
  #wake = () => {};

  /**
   * @param {string} url of the collection.
   * @param {function(): void} changed called after any of the above has changed.
   */
  constructor(url, changed) {
    this.#url = url;
    this.#changed = changed;
    document.addEventListener('visibilitychange', () => {
      if (document.hidden) this.#stop.abort(new Problem('paused', 'Not followed while this page is hidden.'));
      else this.#wake();
    });
  }

  /** Follow for ever. */
  async run() {
    for (let failures = 0; ; ) {
      const began = performance.now();
      try {
        await this.#shown();
        if (!this.#version) await this.#list();
        await this.#watch();
      } catch (error) {
        this.#lose(Problem.from(error));
      }
      const lasted = performance.now() - began > Follower.LONGEST_WAIT_MS;
      failures = lasted || this.problem === null ? 0 : failures + 1;
      await this.#wait(failures);
    }
  }

  async #list() {
    const list = await getJson(this.#url);
    this.items = new Map(list.items.map((item) => [item.metadata.name, item]));
    this.listed = true;
    this.#version = list.metadata.resourceVersion;
  }

  async #watch() {
    const stop = (this.#stop = new AbortController());
    const query = `?watch=1&allowWatchBookmarks=true&resourceVersion=${encodeURIComponent(this.#version)}`;
    const late = setTimeout(() => stop.abort(), ANSWER_MS);
    let checking;
    try {
      const answer = await fetch(this.#url + query, { signal: stop.signal, cache: 'no-store' });
      clearTimeout(late);
      if (!answer.ok) throw await Problem.of(answer);
      this.#prove();
      checking = setInterval(() => this.#check(stop), Follower.CHECK_MS);
      for await (const line of lines(answer.body)) this.#apply(JSON.parse(line));
    } catch (error) {
      throw stop.signal.aborted && stop.signal.reason instanceof Problem ? stop.signal.reason : error;
    } finally {
      clearTimeout(late);
      clearInterval(checking);
      stop.abort();
    }
  }

  /** Ask whether what is known may still be told; if not, the watch is over. */
  async #check(stop) {
    try {
      await getJson(`${this.#url}?limit=1`);
      if (!stop.signal.aborted) this.#prove();
    } catch (error) {
      stop.abort(error);
    }
  }

  #apply({ type, object }) {
    if (type === 'ERROR') throw Problem.ofStatus(object);
    this.#version = object.metadata.resourceVersion;
    if (type === 'DELETED') this.items.delete(object.metadata.name);
    else if (type !== 'BOOKMARK') this.items.set(object.metadata.name, object);
    this.#prove();
  }

  #prove() {
    this.live = true;
    this.problem = null;
    this.provenAt = new Date();
    this.#changed();
  }

  #lose(problem) {
    this.#version = '';
    if (problem.kind === 'expired') return; // listed anew at once, and told of only if that fails
    this.live = false;
    this.problem = problem;
    this.#changed();
  }

  async #wait(failures) {
    if (document.hidden) return;
    const longest = Math.min(Follower.FIRST_WAIT_MS * 2 ** failures, Follower.LONGEST_WAIT_MS);
    const ms = this.problem?.waitMs ?? longest * (0.5 + Math.random() / 2);
    await new Promise((resolve) => {
      this.#wake = resolve;
      setTimeout(resolve, Math.min(ms, Follower.LONGEST_WAIT_MS));
    });
  }

  async #shown() {
    while (document.hidden) await new Promise((resolve) => (this.#wake = resolve));
  }
}

/** The lines of a stream of bytes, as they come. */
async function* lines(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split('\n');
    rest = parts.pop();
    yield* parts;
  }
}
