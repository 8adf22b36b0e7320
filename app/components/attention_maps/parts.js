/* What the server is asked for once one looks closely: the exact cells of a part, and rows in float32. */

const PART = 640; // cells a side of a part, at most: more than a map has pixels
const PAUSE = 120; // milliseconds for which a view, or the cursor, rests before anything is asked for
const ROWS_HELD = 256; // exact rows

class Parts {
  constructor(view) {
    this.view = view;
    this.asking = ''; // what is said while one waits
    this.forget();
  }

  /* Of other maps nothing holds. */
  forget() {
    this.sheet = null;
    this.rows = new Map(); // exact rows of both maps, the oldest first
  }

  keepRow(row, values) {
    if (this.rows.size >= ROWS_HELD) this.rows.delete(this.rows.keys().next().value);
    const width = values.length / 2;
    this.rows.set(row, [values.subarray(0, width), values.subarray(width)]);
  }

  /* Once the view rests: the exact cells of what is seen and a little around it, or finer bins where it is wide. */
  want() {
    clearTimeout(this.resting);
    const { header } = this.view;
    if (!header?.tiles || header.factor === 1) return;
    this.resting = setTimeout(() => this.fetchPart(), PAUSE);
  }

  /* No part is wanted any more, and what is on its way is void: it was of another view, or of other maps. */
  recall() {
    clearTimeout(this.resting);
    this.fetching?.abort();
    this.say('');
  }

  /* One at a time: a newer fetch ends an older one, so that none overtakes another. */
  async fetchPart() {
    this.recall();
    const { view } = this, { tokens, keys, factor: whole } = view.header;
    const factor = 2 ** Math.max(0, Math.ceil(Math.log2(Math.max(view.span, view.wide) / PART)));
    if (factor >= whole || this.sheet?.covers(view, factor)) return;
    const around = (from, span, count) => {
      const room = Math.min(count, PART * factor), spare = Math.max(0, (room - span) / 2);
      const first = Math.max(0, Math.min(count - room, Math.floor((from - spare) / factor) * factor));
      return [first, Math.min(count, first + room)];
    };
    const [top, bottom] = around(view.y0, view.span, tokens.length), [left, right] = around(view.x0, view.wide, keys.length);
    const { signal } = (this.fetching = new AbortController());
    this.say('Fetching the exact cells\u2026');
    const data = await this.ask(`rows=${top}:${bottom}&columns=${left}:${right}&factor=${factor}`, signal);
    if (signal.aborted) return;
    this.say(data ? '' : 'The exact cells could not be had: what is seen stays pooled.');
    if (!data) return;
    const [words, body] = unpack(data);
    const codes = await inflate(body);
    if (signal.aborted) return;
    this.sheet = new Sheet(codes, { ...words, factor, causal: false }, top, left, bottom - top, right - left);
    view.updates += 1;
    view.refresh();
  }

  /* The exact row under the cursor: its readout is then float32. */
  wantRow(row) {
    clearTimeout(this.hovering);
    const { view } = this;
    if (!view.header.tiles || this.rows.has(row)) return;
    this.hovering = setTimeout(async () => {
      const { digest } = view.header, data = await this.ask(`row=${row}`);
      if (!data || digest !== view.header.digest) return;
      this.keepRow(row, new Float32Array(data.buffer));
      if (view.cursor) view.readOut();
    }, PAUSE);
  }

  async ask(query, signal = null) {
    try {
      const answer = await fetch(`${this.view.header.tiles}?${query}`, { signal });
      return answer.ok ? new Uint8Array(await answer.arrayBuffer()) : null;
    } catch {
      return null;
    }
  }

  say(text) {
    this.asking = text;
    this.view.refresh();
  }

  dispose() {
    this.recall();
    clearTimeout(this.hovering);
  }
}
