// A scene as scene.py packed it, and look-ups in it. No order is computed here: a process's knowledge of
// another comes from the steps of its vector timestamps.

const TYPES = { i1: Int8Array, u1: Uint8Array, u2: Uint16Array, i4: Int32Array, f8: Float64Array };
const KINDS = ["send", "receive", "deliver", "internal", "unordered"];
// The fault of a delivery, by its fate; deliveries of unordered messages have none.
const FATES = [
  "",
  "",
  "repeated: it was delivered here before",
  "misdelivered: it was not sent here",
  "of a message that the trace has no send of",
  "",
];
const NEVER = 2 ** 31 - 1;

async function inflated(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).arrayBuffer();
}

function bytesOfBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const letters = atob(text);
  const bytes = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i++) bytes[i] = letters.charCodeAt(i);
  return bytes;
}

function unpacked(buffer) {
  const length = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  const arrays = {};
  for (const [name, [type, offset, size]] of Object.entries(header.arrays)) {
    arrays[name] = new TYPES[type](buffer, 4 + length + offset, size);
  }
  return new Scene(header, arrays);
}

function sums(differences) {
  const values = new Int32Array(differences.length);
  let value = 0;
  for (let i = 0; i < values.length; i++) values[i] = value += differences[i];
  return values;
}

// The first index in from..to whose value is at least `wanted`; `to` if there is none.
function firstAtLeast(values, wanted, from, to) {
  while (from < to) {
    const middle = (from + to) >> 1;
    if (values[middle] < wanted) from = middle + 1;
    else to = middle;
  }
  return from;
}

function isHeld([arrival, delivery]) {
  return arrival >= 0 && delivery - arrival > 1;
}

class Scene {
  constructor(header, arrays) {
    Object.assign(this, arrays);
    this.computation = header.computation;
    this.processes = header.processes;
    this.begin = header.begin;
    this.totals = header.totals;
    this.depth = header.depth;
    this.origin = header.origin === null ? null : BigInt(header.origin);
    this.texts = header.texts;
    this.faults = header.faults;
    this.notes = header.notes;
    this.window = header.window || null;
    // Messages that were held, as [arrival, releasing event]; -1 if none released it.
    this.holds = header.holds || [...this.arrival.keys()].map(i => [this.arrival[i], i]).filter(isHeld);
    this.criticalSteps = header.critical_steps; // ns between consecutive events of the critical path
    this.size = this.kind.length;
    this.offsets = new Int32Array(this.processes.length + 1);
    header.lengths.forEach((length, p) => {
      this.offsets[p + 1] = this.offsets[p] + length;
    });
    this.process = new Int32Array(this.size);
    header.lengths.forEach((length, p) => this.process.fill(p, this.offsets[p], this.offsets[p + 1]));
    this.level = sums(arrays.level);
    this.hasPast = Boolean(arrays.pairs);
    if (this.hasPast) {
      this.at = sums(arrays.at);
      this.known = sums(arrays.known);
    }
    this.hasTime = Boolean(arrays.time);
    this.hasHasse = Boolean(arrays.hasse_level) && arrays.hasse_effects.length > 0;
    this.hasSpans = Boolean(arrays.span_first);
    this.numbers = new Map(this.processes.map((name, p) => [name, p]));
    this.causeOffsets = new Int32Array(this.size + 1);
    for (const effect of this.effects) this.causeOffsets[effect + 1]++;
    for (let i = 0; i < this.size; i++) this.causeOffsets[i + 1] += this.causeOffsets[i];
  }

  seq(i) {
    return this.begin[this.process[i]] + i - this.offsets[this.process[i]] + 1;
  }
  name(i) {
    return `${this.processes[this.process[i]]}#${this.seq(i)}`;
  }
  text(number) {
    return number < 0 ? null : this.texts[number];
  }
  messageOf(i) {
    return this.text(this.message[i]);
  }
  deed(i) {
    return KINDS[this.kind[i]] + (this.message[i] < 0 ? "" : ` ${this.messageOf(i)}`);
  }

  // The event with this name, or -1 if the scene has none.
  find(name) {
    const cut = name.lastIndexOf("#");
    const p = this.numbers.get(name.slice(0, cut));
    return p === undefined ? -1 : this.at_seq(p, Number(name.slice(cut + 1)));
  }

  at_seq(p, seq) {
    const place = seq - this.begin[p] - 1;
    return place >= 0 && place < this.offsets[p + 1] - this.offsets[p] ? this.offsets[p] + place : -1;
  }

  stepsOf(p, q) {
    const pair = p * this.processes.length + q;
    const k = firstAtLeast(this.pairs, pair, 0, this.pairs.length);
    return this.pairs[k] === pair ? [this.starts[k], this.starts[k + 1]] : null;
  }

  // How many events of q are in the past of event `seq` of p.
  knows(p, seq, q) {
    if (p === q) return seq;
    const steps = this.stepsOf(p, q);
    if (!steps) return 0;
    const next = firstAtLeast(this.at, seq + 1, steps[0], steps[1]);
    return next === steps[0] ? 0 : this.known[next - 1];
  }

  // The seq of q's first event with event `seq` of p in its past; NEVER if there is none.
  firstKnowing(q, p, seq) {
    if (p === q) return seq;
    const steps = this.stepsOf(q, p);
    if (!steps) return NEVER;
    const first = firstAtLeast(this.known, seq, steps[0], steps[1]);
    return first === steps[1] ? NEVER : this.at[first];
  }

  // For each process, the seq of its newest event in the past of i; for i's own process, i itself.
  past(i) {
    const p = this.process[i],
      seq = this.seq(i);
    return Int32Array.from(this.processes, (_, q) => this.knows(p, seq, q));
  }

  // For each process, the seq of its first event in the future of i; for i's own process, i itself.
  future(i) {
    const p = this.process[i],
      seq = this.seq(i);
    return Int32Array.from(this.processes, (_, q) => this.firstKnowing(q, p, seq));
  }

  happenedBefore(i, j) {
    return i !== j && this.knows(this.process[j], this.seq(j), this.process[i]) >= this.seq(i);
  }

  informants(i) {
    const found = this.source[i] >= 0 ? [this.source[i]] : [];
    for (let k = this.causeOffsets[i]; k < this.causeOffsets[i + 1]; k++) found.push(this.causes[k]);
    return found;
  }

  // The path from i to j of witness.py: each event follows the previous one on its process, or is caused by
  // it. Null if it leads through events that the scene does not have.
  path(i, j) {
    const p = this.process[i],
      seq = this.seq(i);
    const path = [j];
    while (this.process[path[path.length - 1]] !== p) {
      const last = path[path.length - 1],
        q = this.process[last];
      const learnt = this.at_seq(q, this.firstKnowing(q, p, seq));
      if (learnt < 0) return null;
      if (learnt !== last) path.push(learnt);
      const next = this.informants(learnt).find(u => this.knows(this.process[u], this.seq(u), p) >= seq);
      if (next === undefined) return null;
      path.push(next);
    }
    if (path[path.length - 1] !== i) path.push(i);
    return path.reverse();
  }

  // The events of the critical path that are in the scene, in order.
  criticalPath() {
    return [...this.critical].filter(i => i >= 0);
  }

  // The time from the previous event of the critical path to this one; undefined if unknown.
  criticalStep(i) {
    return this.criticalSteps[this.critical.indexOf(i) - 1];
  }

  deliveriesOf(send) {
    const found = [];
    for (let i = 0; i < this.size; i++) if (this.source[i] === send) found.push(i);
    return found;
  }

  effectsOf(cause) {
    const found = [];
    for (let k = 0; k < this.causes.length; k++) if (this.causes[k] === cause) found.push(this.effects[k]);
    return found;
  }

  // The deliveries that a held message waited for: those during the hold whose sends are in its send's past.
  waitedFor(delivery) {
    const found = [],
      send = this.source[delivery];
    if (this.arrival[delivery] < 0 || send < 0 || !this.hasPast) return found;
    for (let i = this.arrival[delivery] + 1; i < delivery; i++) {
      if (this.kind[i] === 2 && this.source[i] >= 0 && this.happenedBefore(this.source[i], send))
        found.push(i);
    }
    return found;
  }
}
