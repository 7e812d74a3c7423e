// Helpers for drawing: shapes of events, steps of an axis, durations as text.

// An unordered send (4) is drawn like any other send.
function shape(g, kind, x, y, r) {
  if (kind === 0 || kind === 4) {
    g.moveTo(x + r, y);
    g.arc(x, y, r, 0, 7);
  } else if (kind === 1) {
    g.moveTo(x + r * 0.9, y);
    g.arc(x, y, r * 0.9, 0, 7);
  } else if (kind === 2) {
    const d = r * 1.25;
    g.moveTo(x, y - d);
    g.lineTo(x + d, y);
    g.lineTo(x, y + d);
    g.lineTo(x - d, y);
    g.closePath();
  } else g.rect(x - r * 0.75, y - r * 0.75, r * 1.5, r * 1.5);
}

// Draw an event in the middle of a square of side 2 * `half` pixels; an arrival is a ring.
function drawShape(g, kind, half, radius, ratio, colour, ground) {
  g.scale(ratio, ratio);
  g.beginPath();
  shape(g, kind, half, half, radius);
  g.lineWidth = 1.5;
  g.fillStyle = kind === 1 ? ground : colour;
  g.strokeStyle = colour;
  g.fill();
  if (kind === 1) g.stroke();
}

function niceStep(least, whole) {
  const power = 10 ** Math.floor(Math.log10(least));
  const step = [1, 2, 5, 10].map(m => m * power).find(m => m >= least);
  return whole ? Math.max(1, step) : step;
}

const UNITS = [
  ["s", 1e9],
  ["ms", 1e6],
  ["µs", 1e3],
  ["ns", 1],
];

// A duration as text; `step` is the smallest difference that must be visible, in ns.
function duration(ns, step = 0) {
  const size = Math.max(Math.abs(ns), step);
  const [unit, scale] = UNITS.find(([, s]) => size >= s) || UNITS[3];
  const digits = step ? Math.max(0, Math.min(6, Math.ceil(-Math.log10(step / scale)))) : 3;
  const text = (ns / scale).toFixed(digits);
  return `${step ? text : String(Number(text))} ${unit}`;
}
