// Draws what is visible: whole events where they are wide enough, groups of them where they are not.

const LABELS = 230, AXIS = 22, ROW = 17, HEAD = 20, FINEST = 2; // pixels
const HUES = { kernel: null, copy: 28, memset: 48, sync: 0, graph: 285, range: 170, mark: 330, call: 215, os_call: 240 };

function colourOf(picture, name) {
  if (picture.colours[name]) return picture.colours[name];
  const [kind, text] = picture.names[name];
  let hash = 0;
  for (let i = 0; i < text.length; i++) hash = (hash * 31 + text.charCodeAt(i)) >>> 0;
  const hue = HUES[picture.kinds[kind]];
  const colour = hue === null ? `hsl(${hash % 360} 62% 58%)` : `hsl(${hue} 55% ${50 + (hash % 18)}%)`;
  return (picture.colours[name] = colour);
}

/** Where each row lies: [{row, top, height}] and headings, from the top of the whole picture. */
function layOut(picture) {
  const lines = [];
  let top = 0, group = null;
  picture.rows.forEach((row, number) => {
    if (row.group !== group) {
      group = row.group;
      lines.push({ heading: group, top, height: HEAD });
      top += HEAD;
    }
    lines.push({ row: number, top, height: ROW });
    top += ROW;
  });
  return { lines, height: top };
}

class Painter {
  constructor(canvas, picture) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.picture = picture;
    picture.colours = [];
    this.layout = layOut(picture);
    this.resize();
  }

  resize() {
    const ratio = window.devicePixelRatio || 1;
    this.width = this.canvas.clientWidth;
    this.height = this.canvas.clientHeight;
    this.canvas.width = Math.round(this.width * ratio);
    this.canvas.height = Math.round(this.height * ratio);
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const style = getComputedStyle(document.body);
    this.ink = style.getPropertyValue("--text");
    this.line = style.getPropertyValue("--line");
    this.soft = style.getPropertyValue("--soft");
    this.muted = style.getPropertyValue("--muted");
  }

  /** Draws the times `view.from` .. `view.to` with the picture scrolled down by `view.scroll` pixels. */
  draw(view, chosen) {
    const context = this.context;
    this.view = view;
    this.scale = (this.width - LABELS) / (view.to - view.from);
    context.clearRect(0, 0, this.width, this.height);
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    this.letter = context.measureText("abcdefgh_0123456").width / 16;
    this.lines();
    for (const line of this.layout.lines) {
      const top = line.top - view.scroll + AXIS;
      if (top + line.height < AXIS || top > this.height) continue;
      if (line.heading !== undefined) this.heading(line.heading, top);
      else this.row(line.row, top, chosen);
    }
    this.axis();
  }

  heading(text, top) {
    this.context.fillStyle = this.soft;
    this.context.fillRect(0, top, this.width, HEAD);
    this.text(text, 6, top + HEAD / 2, this.width - 12, this.ink);
  }

  row(number, top, chosen) {
    const row = this.picture.rows[number], context = this.context;
    context.save();
    context.beginPath();
    context.rect(LABELS, Math.max(top, AXIS), this.width - LABELS, ROW);
    context.clip();
    this.groups(row, row.levels.length - 1, 0, row.levels[row.levels.length - 1].count, top);
    if (chosen && chosen.row === number) this.frame(row, chosen.index, top);
    context.restore();
    const label = row.depth === 0 ? row.name : "";
    this.text(label, 14, top + ROW / 2, LABELS - 20, this.muted);
  }

  /** Draws members `begin` .. `end` of a level; goes down into those that are wide enough to tell apart. */
  groups(row, level, begin, end, top) {
    const { first, last, busy, name } = row.levels[level];
    for (let i = begin; i < end; i++) {
      if (last[i] < this.view.from) continue;
      if (first[i] > this.view.to) return;
      const span = last[i] - first[i];
      if (level === 0 || span * this.scale < FINEST) {
        const share = level === 0 || span === 0 ? 1 : Math.min(1, busy[i] / span);
        this.bar(row, level, i, name[i], top, share);
      } else {
        this.groups(row, level - 1, i * FAN, Math.min(row.levels[level - 1].count, (i + 1) * FAN), top);
      }
    }
  }

  bar(row, level, index, name, top, share) {
    const { first, last } = row.levels[level], context = this.context;
    const left = Math.max(LABELS - 1, this.x(first[index])), right = Math.min(this.width + 1, this.x(last[index]));
    const width = Math.max(1, right - left - (right - left > 3 ? 0.5 : 0));
    const dimmed = this.picture.matching !== null && !row.hits[level][index];
    context.globalAlpha = dimmed ? 0.12 : 0.35 + 0.65 * share;
    context.fillStyle = colourOf(this.picture, name);
    context.fillRect(left, top + 1, width, ROW - 2);
    context.globalAlpha = 1;
    if (level === 0 && width > 34 && !dimmed) this.text(this.picture.names[name][1], left + 3, top + ROW / 2, width - 6, "#101418");
  }

  frame(row, index, top) {
    const { first, last } = row.levels[0];
    this.context.strokeStyle = this.ink;
    this.context.lineWidth = 2;
    this.context.strokeRect(this.x(first[index]), top + 1, Math.max(2, (last[index] - first[index]) * this.scale), ROW - 2);
  }

  /** The times at which lines are drawn, and where they are. */
  ticks() {
    const { from, to } = this.view;
    const step = roundStep((to - from) / Math.max(1, (this.width - LABELS) / 110));
    const ticks = [];
    for (let time = Math.ceil(from / step) * step; time <= to; time += step) ticks.push([time, Math.round(this.x(time)) + 0.5]);
    return ticks;
  }

  lines() {
    const context = this.context;
    context.strokeStyle = this.line;
    context.lineWidth = 1;
    for (const [, x] of this.ticks()) {
      context.beginPath();
      context.moveTo(x, AXIS - 5);
      context.lineTo(x, this.height);
      context.stroke();
    }
  }

  axis() {
    this.context.fillStyle = this.soft;
    this.context.fillRect(0, 0, this.width, AXIS);
    for (const [time, x] of this.ticks()) this.text(spanText(time), x + 3, AXIS / 2, 105, this.muted);
  }

  text(text, x, y, room, colour) {
    const shown = text.slice(0, Math.max(0, Math.floor(room / this.letter)));
    if (shown === "") return;
    this.context.fillStyle = colour;
    this.context.fillText(shown.length < text.length ? `${shown.slice(0, -1)}…` : shown, x, y);
  }

  x(time) {
    return LABELS + (time - this.view.from) * this.scale;
  }

  /** The event under a point: {row, index} or null. Narrow events are found within 2 pixels. */
  at(x, y) {
    if (x < LABELS || y < AXIS || !this.view) return null;
    const height = y - AXIS + this.view.scroll;
    const line = this.layout.lines.find((each) => height >= each.top && height < each.top + each.height);
    if (!line || line.row === undefined) return null;
    const time = this.view.from + (x - LABELS) / this.scale, near = 2 / this.scale;
    const { first, last, count } = this.picture.rows[line.row].levels[0];
    const before = lastBefore(first, count, time);
    if (before >= 0 && time <= last[before]) return { row: line.row, index: before };
    const after = before + 1;
    const toNext = after < count ? first[after] - time : Infinity, toLast = before >= 0 ? time - last[before] : Infinity;
    if (Math.min(toNext, toLast) > near) return null;
    return { row: line.row, index: toNext < toLast ? after : before };
  }
}

function roundStep(rough) {
  const power = 10 ** Math.floor(Math.log10(Math.max(rough, 1)));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= rough);
}

/** Nanoseconds for people, exact to the nanosecond: `1.5 ms`. */
function spanText(nanoseconds) {
  const [divisor, unit] = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]].find(([each]) => Math.abs(nanoseconds) >= each) || [1, "ns"];
  return `${Number((nanoseconds / divisor).toFixed(9)).toLocaleString("en", { maximumFractionDigits: 9 })} ${unit}`;
}
