// Sums over a cut: what core/partition says of loads and memory, from the same prefix sums, so that
// a drag shows them at once. Steps and bubbles are simulated, and come from the kernel alone.

// The binary block of partition.py: prefix sums of the layers' times, and of their bytes.
function unpackLayers(about, raw) {
  const n = about.layers, bytes = raw.buffer.slice(raw.byteOffset, raw.byteOffset + raw.byteLength);
  const all = new Float64Array(bytes);
  let at = 0;
  const take = (length) => all.subarray(at, (at += length));
  return { n, time: take(n + 1), forward: take(n + 1), kept: take(n + 1),
    still: about.problems.map(() => take(n + 1)) };
}

// Everything about the cut `bounds` of one problem: its schedule's layout, devices and rules.
function sumsOf(layers, problem, bounds) {
  const { ranks, rank, speed, caps, held, table, tied, together } = problem;
  const loads = rank.map((_, s) => (layers.time[bounds[s + 1]] - layers.time[bounds[s]]) / speed[s]);
  const rankLoads = new Array(ranks).fill(0), memory = new Array(ranks).fill(0);
  loads.forEach((load, s) => { rankLoads[rank[s]] += load; });
  const part = (column, s) => column[bounds[s + 1]] - column[bounds[s]];
  rank.forEach((r, s) => { memory[r] += part(layers.still[problem.number], s); });
  for (let r = 0; r < ranks; r++) {  // the worst of the moments at which a rank may hold the most
    memory[r] += Math.max(...held[r].map((counts) =>
      counts.reduce((sum, count, k) => sum + count * part(layers.kept, table[r][k]), 0)));
  }
  let apart = false;
  for (const [numbers, bytes] of tied) {  // tied weights on one rank are there once
    const homes = numbers.map((layer) => rank[sliceOf(bounds, layer)]);
    homes.forEach((home, k) => { if (homes.indexOf(home) < k) memory[home] -= bytes; });
    apart = apart || homes.some((home) => home !== homes[0]);
  }
  const most = Math.max(...rankLoads), mean = rankLoads.reduce((a, b) => a + b, 0) / ranks;
  const over = memory.flatMap((bytes, r) => (caps[r] !== null && bytes > caps[r] ? [r] : []));
  return { loads, rankLoads, memory, most, slowest: rankLoads.indexOf(most), over,
    fullest: memory.indexOf(Math.max(...memory)), imbalance: mean ? most / mean - 1 : 0,
    apart: together && apart, fits: !over.length && !(together && apart) };
}

// The slice that holds a layer.
function sliceOf(bounds, layer) {
  let s = 0;
  while (bounds[s + 1] <= layer) s++;
  return s;
}

// -- numbers as core/words.py prints them ---------------------------------------------------------

// Digits after the point as Python rounds them: exact ties go to the even neighbour.
function fixed(x, places) {
  const text = x.toFixed(places), more = x.toFixed(Math.min(100, places + 25));
  const tail = more.slice(more.indexOf(".") + 1 + places);
  if (!/^50*$/.test(tail)) return text;
  const down = more.slice(0, more.indexOf(".") + 1 + places).replace(/\.$/, "");
  return "02468".includes(down[down.length - 1]) ? down : text;
}

function figures(x, digits = 4) {
  if (Math.abs(x) >= 10 ** digits) return fixed(x, 0);
  if (!x) return "0";
  const places = digits - 1 - Number(x.toExponential(20).split("e")[1]);
  return String(Number(fixed(x, Math.max(0, Math.min(75, places)))));
}

function timeWords(time, unit, digits = 4) {
  if (unit !== "s" || !time) return `${figures(time, digits)} ${unit}`;
  const [factor, name] = Math.abs(time) >= 1 ? [1, "s"] : Math.abs(time) >= 1e-3 ? [1 / 1e-3, "ms"]
    : Math.abs(time) >= 1e-6 ? [1 / 1e-6, "µs"] : [1e6, "µs"];
  return `${figures(time * factor, digits)} ${name}`;
}

function byteWords(size) {
  const [unit, name] = [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"]].find(([u]) => size >= u) || [];
  return unit ? `${figures(size / unit, 3)} ${name}` : `${fixed(size, 0)} bytes`;
}

const percentWords = (share) => `${fixed(share * 100, 1)} %`;

function signedWords(share) {
  const text = percentWords(Math.abs(share));
  return text === "0.0 %" ? text : (share > 0 ? "+" : "-") + text;
}
