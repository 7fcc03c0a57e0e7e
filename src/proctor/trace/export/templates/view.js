// Zoom, pan, keys, search, tooltips.

const SHORTEST = 20; // nanoseconds on the whole screen

class Viewer {
  constructor(picture) {
    this.picture = picture;
    this.canvas = document.getElementById("canvas");
    this.tooltip = document.getElementById("tooltip");
    this.chosen = null;
    this.painter = new Painter(this.canvas, picture);
    this.whole = { from: 0, to: Math.max(picture.last, SHORTEST) };
    this.view = { ...this.whole, scroll: 0 };
    this.listen();
    this.redraw();
    this.say(`${this.count()} events over ${spanText(picture.last)}; times count from the trace's first event`);
  }

  count() {
    return this.picture.rows.reduce((sum, row) => sum + row.count, 0).toLocaleString("en");
  }

  listen() {
    const canvas = this.canvas;
    canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    canvas.addEventListener("pointerdown", (event) => this.press(event));
    canvas.addEventListener("pointermove", (event) => this.move(event));
    canvas.addEventListener("pointerup", (event) => this.release(event));
    canvas.addEventListener("pointerleave", () => { this.tooltip.hidden = true; });
    document.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => { this.painter.resize(); this.redraw(); }).observe(canvas);
    const search = document.getElementById("search");
    search.addEventListener("input", () => this.search(search.value));
    search.addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.step(!event.shiftKey);
      if (event.key === "Escape") { search.value = ""; this.search(""); canvas.focus(); }
      event.stopPropagation();
    });
    document.getElementById("next").addEventListener("click", () => this.step(true));
    document.getElementById("previous").addEventListener("click", () => this.step(false));
    document.getElementById("fit").addEventListener("click", () => this.fit());
  }

  redraw() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      const begun = performance.now();
      this.painter.draw(this.view, this.chosen);
      // For whoever measures: how long the last frame took, and how many there were.
      document.body.dataset.frameMs = String(performance.now() - begun);
      document.body.dataset.frames = String(Number(document.body.dataset.frames || 0) + 1);
    });
  }

  say(text) {
    document.getElementById("chosen").textContent = text;
  }

  /** Shows from .. to, kept within the trace and not closer than a few nanoseconds. */
  show(from, to) {
    const room = this.whole.to - this.whole.from;
    const span = Math.min(Math.max(to - from, Math.min(SHORTEST, room)), room);
    const middle = (from + to) / 2;
    const start = Math.min(Math.max(middle - span / 2, this.whole.from), this.whole.to - span);
    this.view = { ...this.view, from: start, to: start + span };
    this.redraw();
  }

  zoom(factor, x = LABELS + (this.painter.width - LABELS) / 2) {
    const { from, to } = this.view;
    const time = from + ((Math.max(x, LABELS) - LABELS) / (this.painter.width - LABELS)) * (to - from);
    const span = Math.max(SHORTEST, (to - from) * factor);
    const begin = time - ((time - from) / (to - from)) * span;
    this.show(begin, begin + span);
  }

  pan(share) {
    const span = this.view.to - this.view.from;
    const from = Math.min(Math.max(this.view.from + share * span, this.whole.from), this.whole.to - span);
    this.show(from, from + span);
  }

  scroll(pixels) {
    const most = Math.max(0, this.painter.layout.height + AXIS - this.painter.height);
    this.view = { ...this.view, scroll: Math.min(Math.max(0, this.view.scroll + pixels), most) };
    this.redraw();
  }

  fit() {
    this.view = { ...this.whole, scroll: 0 };
    this.redraw();
  }

  wheel(event) {
    event.preventDefault();
    this.tooltip.hidden = true;
    const amount = event.deltaY * (event.deltaMode === 1 ? 16 : 1);
    if (event.offsetX < LABELS) this.scroll(amount);
    else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) this.pan((event.deltaX || amount) / 1000);
    else this.zoom(Math.exp(Math.min(Math.max(amount, -400), 400) / 400), event.offsetX);
  }

  press(event) {
    this.drag = { x: event.clientX, y: event.clientY, moved: false };
    this.canvas.setPointerCapture(event.pointerId);
  }

  move(event) {
    if (!this.drag) return this.hover(event);
    const dx = event.clientX - this.drag.x, dy = event.clientY - this.drag.y;
    if (!this.drag.moved && Math.hypot(dx, dy) < 4) return;
    this.drag = { x: event.clientX, y: event.clientY, moved: true };
    this.tooltip.hidden = true;
    this.pan(-dx / (this.painter.width - LABELS));
    this.scroll(-dy);
  }

  release(event) {
    const clicked = this.drag && !this.drag.moved;
    this.drag = null;
    if (!clicked) return;
    this.chosen = this.painter.at(event.offsetX, event.offsetY);
    this.say(this.chosen ? this.describe(this.chosen) : "");
    this.redraw();
  }

  hover(event) {
    const found = this.painter.at(event.offsetX, event.offsetY);
    this.tooltip.hidden = found === null;
    if (found === null) return;
    this.tooltip.textContent = this.describe(found);
    const left = Math.min(event.offsetX + 14, this.painter.width - this.tooltip.offsetWidth - 4);
    const below = event.offsetY + 16 + this.tooltip.offsetHeight < this.painter.height;
    this.tooltip.style.left = `${Math.max(0, left)}px`;
    this.tooltip.style.top = `${below ? event.offsetY + 16 : Math.max(0, event.offsetY - this.tooltip.offsetHeight - 8)}px`;
  }

  describe({ row: number, index }) {
    const row = this.picture.rows[number], { first, last, name } = row.levels[0];
    const [kind, text] = this.picture.names[name[index]];
    const took = row.unended[index] ? "does not end in this trace" : spanText(last[index] - first[index]);
    const lines = [text, `${this.picture.kinds[kind]}: ${took}, at ${spanText(first[index])}`];
    if (row.size[index] > 0) lines.push(`${(row.size[index] - 1).toLocaleString("en")} bytes`);
    if (this.picture.details[row.detail[index]]) lines.push(this.picture.details[row.detail[index]]);
    lines.push(`${row.group}, ${row.name}`);
    return lines.join("\n");
  }

  search(text) {
    const found = findNames(this.picture, text);
    this.chosen = null;
    document.getElementById("found").textContent = text === "" ? "" : `${found.toLocaleString("en")} events match`;
    this.redraw();
  }

  /** Goes to the next match in time, or to the one before. */
  step(forward) {
    if (this.picture.matching === null) return;
    const from = this.chosen || { row: forward ? -1 : Infinity, index: -1 };
    const time = this.chosen ? this.picture.rows[from.row].levels[0].first[from.index] : this.view.from;
    const found = nextMatch(this.picture, time, from, forward);
    if (!found) return this.say(forward ? "no match after this" : "no match before this");
    this.chosen = found;
    this.bringIntoView(found);
    this.say(this.describe(found));
  }

  bringIntoView({ row, index }) {
    const { first, last } = this.picture.rows[row].levels[0];
    const line = this.painter.layout.lines.find((each) => each.row === row);
    const visible = this.painter.height - AXIS;
    if (line.top < this.view.scroll || line.top + ROW > this.view.scroll + visible) this.scroll(line.top - visible / 2 - this.view.scroll);
    const span = this.view.to - this.view.from, length = last[index] - first[index];
    const wanted = Math.min(span, Math.max(length * 20, SHORTEST * 10)), middle = (first[index] + last[index]) / 2;
    if (first[index] < this.view.from || last[index] > this.view.to || length < span / 1000) this.show(middle - wanted / 2, middle + wanted / 2);
    else this.redraw();
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const actions = {
      w: () => this.zoom(0.7), "+": () => this.zoom(0.7), s: () => this.zoom(1.4), "-": () => this.zoom(1.4),
      a: () => this.pan(-0.2), ArrowLeft: () => this.pan(-0.2), d: () => this.pan(0.2), ArrowRight: () => this.pan(0.2),
      ArrowUp: () => this.scroll(-3 * ROW), ArrowDown: () => this.scroll(3 * ROW), 0: () => this.fit(), f: () => this.fit(),
      "/": () => document.getElementById("search").focus(), n: () => this.step(true), p: () => this.step(false),
      Escape: () => { this.chosen = null; this.tooltip.hidden = true; this.redraw(); },
    };
    const action = actions[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!action) return;
    event.preventDefault();
    action();
  }
}

readPicture()
  .then((picture) => {
    new Viewer(picture);
    document.body.dataset.ready = "yes";
  })
  .catch((error) => {
    document.getElementById("chosen").textContent = `this picture cannot be shown: ${error.message}`;
    throw error;
  });
