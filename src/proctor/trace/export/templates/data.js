// Unpacks the events and sums them up in ever larger groups, so that a frame costs what the screen shows.
// The layout of the blobs is described in picture.py.

const FAN = 8; // events a group of the first level, groups a group of the next

async function unpack(id) {
  const element = document.getElementById(id);
  const text = atob(element.textContent.trim());
  element.remove();
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** Reads one column of `count` values of `width` bytes each; returns the position behind it. */
function readColumn(bytes, position, count, width, into) {
  let factor = 1;
  for (let plane = 0; plane < width; plane++, factor *= 256) {
    for (let i = 0; i < count; i++) into[i] += bytes[position + i] * factor;
    position += count;
  }
  return position;
}

/** A level of groups over `below`, which has first, last (times), busy and name by index. */
function groupsOver(below) {
  const count = Math.ceil(below.count / FAN);
  const level = {
    count, first: new Float64Array(count), last: new Float64Array(count), busy: new Float64Array(count),
    longest: new Float64Array(count), name: new Uint32Array(count),
  };
  for (let group = 0; group < count; group++) {
    const begin = group * FAN, end = Math.min(below.count, begin + FAN);
    level.first[group] = below.first[begin];
    for (let i = begin; i < end; i++) {
      const length = below.longest ? below.longest[i] : below.last[i] - below.first[i];
      level.busy[group] += below.busy ? below.busy[i] : length;
      level.last[group] = Math.max(level.last[group], below.last[i]);
      if (length >= level.longest[group]) {
        level.longest[group] = length;
        level.name[group] = below.name[i];
      }
    }
  }
  return level;
}

function readRow(row, bytes, position, last) {
  const columns = [Float64Array, Float64Array, Uint32Array, Uint32Array, Float64Array].map((type) => new type(row.count));
  const unended = new Uint8Array(row.count);
  columns.forEach((column, which) => {
    position = readColumn(bytes, position, row.count, row.widths[which], column);
    if (which === 1) for (let i = 0; i < row.count; i++) unended[i] = column[i] === 0 ? 1 : 0;
  });
  const [first, end, name, detail, size] = columns;
  let time = 0;
  for (let i = 0; i < row.count; i++) {
    time += first[i];
    first[i] = time;
    end[i] = unended[i] ? Math.max(time, last) : time + end[i] - 1;
  }
  const levels = [{ count: row.count, first, last: end, name }];
  while (levels[levels.length - 1].count > FAN) levels.push(groupsOver(levels[levels.length - 1]));
  return [{ ...row, levels, detail, size, unended }, position];
}

async function readPicture() {
  const meta = JSON.parse(new TextDecoder().decode(await unpack("meta")));
  const bytes = await unpack("data");
  let position = 0;
  const rows = [];
  for (const described of meta.rows) {
    const [row, behind] = readRow(described, bytes, position, meta.last);
    rows.push(row);
    position = behind;
  }
  return { ...meta, rows, matching: null };
}

/** Index of the last event that starts at or before `time`; -1 if there is none. */
function lastBefore(starts, count, time) {
  let low = 0, high = count;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (starts[middle] <= time) low = middle + 1; else high = middle;
  }
  return low - 1;
}

/** Marks which names hold `text`, and which groups of events hold such a name. Returns the number of events. */
function findNames(picture, text) {
  const wanted = text.toLowerCase();
  if (wanted === "") {
    picture.matching = null;
    return 0;
  }
  picture.matching = Uint8Array.from(picture.names, ([, name]) => (name.toLowerCase().includes(wanted) ? 1 : 0));
  let found = 0;
  for (const row of picture.rows) {
    const { name, count } = row.levels[0];
    row.hits = row.levels.map((level) => new Uint8Array(level.count));
    for (let i = 0; i < count; i++) {
      if (!picture.matching[name[i]]) continue;
      found++;
      for (let level = 0, at = i; level < row.levels.length; level++, at = Math.floor(at / FAN)) row.hits[level][at] = 1;
    }
  }
  return found;
}

/** The matching event nearest to `time` in one direction, never the one at it: {row, index, start} or null. */
function nextMatch(picture, time, after, forward) {
  let best = null;
  picture.rows.forEach((row, number) => {
    const { first, count } = row.levels[0];
    const step = forward ? 1 : -1;
    let i = forward ? Math.max(0, lastBefore(first, count, time - 1)) : lastBefore(first, count, time);
    for (; i >= 0 && i < count; i += step) {
      if (!row.hits[0][i]) continue;
      const beyond = compare(first[i], number, i, time, after) * step > 0;
      if (!beyond) continue;
      if (!best || compare(first[i], number, i, best.start, best) * step < 0) best = { row: number, index: i, start: first[i] };
      break;
    }
  });
  return best;
}

function compare(start, row, index, otherStart, other) {
  return start - otherStart || row - other.row || index - other.index;
}
