// The binary columns of a picture (see columns.py), and the arithmetic of its colours.
const LETTERS = "FBWUSRGL", WAIT = 5, SOLID = 4;
const KIND_WORDS = ["forward", "backward", "weight gradient", "optimizer step", "send",
  "wait for a message", "gradient reduction", "load data"];
const clamp = (x, low, high) => Math.max(low, Math.min(high, x));

// The binary block of columns.py as typed arrays.
function unpack(meta, raw) {
  const n = meta.n, at = meta.heldAt, h = at.length ? at[at.length - 1] : 0;
  const bytes = raw.buffer.slice(raw.byteOffset, raw.byteOffset + raw.byteLength);
  let offset = 0;
  const take = (Type, length) => {
    const column = new Type(bytes, offset, length);
    offset += column.byteLength;
    return column;
  };
  const d = { meta, n, start: take(Float64Array, n), end: take(Float64Array, n),
    held: take(Float64Array, h), lane: take(Int32Array, n), micro: take(Int32Array, n),
    needs: take(Int32Array, n), twin: take(Int32Array, n), count: take(Int32Array, h),
    wait: take(Float32Array, n), kind: take(Uint8Array, n), chunk: take(Uint8Array, n) };
  d.of = meta.lines.length;
  // What is drawn in a lane: one of the timelines laid over each other, or of those in a stack.
  d.line = (lane) => (meta.groups ? meta.groups[meta.rows[lane][0]] : meta.lines[lane % d.of]);
  d.lanes = meta.rows.length * d.of;
  d.first = new Int32Array(d.lanes + 1);
  for (let i = 0; i < n; i++) d.first[d.lane[i] + 1]++;
  for (let l = 0; l < d.lanes; l++) d.first[l + 1] += d.first[l];
  d.total = 0;
  d.longest = new Float64Array(d.lanes);  // of a lane: how far back an open span can begin
  let time = 0, work = 0;
  for (let i = 0; i < n; i++) {
    const last = d.end[i] - d.start[i], l = d.lane[i];
    d.total = Math.max(d.total, d.end[i]);
    d.longest[l] = Math.max(d.longest[l], last);
    if (d.kind[i] < SOLID) { time += last; work++; }
  }
  d.total = d.total || 1;
  d.mean = work ? time / work : 1;
  d.digits = String(d.micro.reduce((most, m) => Math.max(most, m), 0)).length;
  // Recorded runs draw the waits they recorded, the others those that follow from the operations.
  d.recorded = meta.lines.map(() => false);
  for (let i = 0; i < n; i++) if (d.kind[i] === WAIT) d.recorded[d.lane[i] % d.of] = true;
  return d;
}

// First index of a sorted column in [low, high) whose value is >= x.
function lower(column, x, low, high) {
  while (low < high) {
    const mid = (low + high) >> 1;
    if (column[mid] < x) low = mid + 1; else high = mid;
  }
  return low;
}

const rgb = (hex) => [1, 3, 5].map((i) => parseInt(hex.substr(i, 2), 16));
const blend = (a, b, share) => {
  const p = rgb(a), q = rgb(b);
  return "#" + p.map((x, i) => Math.round(x + (q[i] - x) * share).toString(16).padStart(2, "0"))
    .join("");
};
const luminance = (hex) => rgb(hex).map((c) => c / 255)
  .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
  .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
