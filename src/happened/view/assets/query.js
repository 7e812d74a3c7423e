// Match events with a query. All words must match; key:text looks in one place, key=value in attributes.

const FIELDS = {
  process: (scene, i) => scene.processes[scene.process[i]],
  kind: (scene, i) => KINDS[scene.kind[i]],
  message: (scene, i) => scene.messageOf(i) || "",
  label: (scene, i) => scene.text(scene.label[i]) || "",
  event: (scene, i) => scene.name(i),
};
const SCALES = { ns: 1, us: 1e3, µs: 1e3, ms: 1e6, s: 1e9, m: 60e9, h: 3600e9 };

function attributesOf(scene, i) {
  return scene.attributes[i] >= 0 ? scene.text(scene.attributes[i]) : [];
}

function termOf(word) {
  const time = /^time([<>])(-?[\d.]+)(ns|us|µs|ms|s|m|h)?$/.exec(word);
  if (time) {
    const bound = Number(time[2]) * (SCALES[time[3]] || 1);
    return (scene, i) => scene.hasTime && (time[1] === "<" ? scene.time[i] < bound : scene.time[i] > bound);
  }
  const field = /^(process|kind|message|label|event):(.+)$/.exec(word);
  if (field) return (scene, i) => FIELDS[field[1]](scene, i).toLowerCase().includes(field[2]);
  const attribute = /^([^=]+)=(.*)$/.exec(word);
  if (attribute) {
    return (scene, i) => {
      const pairs = attributesOf(scene, i);
      for (let k = 0; k < pairs.length; k += 2) {
        if (pairs[k].toLowerCase() === attribute[1] && pairs[k + 1].toLowerCase().includes(attribute[2]))
          return true;
      }
      return false;
    };
  }
  return (scene, i) =>
    Object.values(FIELDS).some(of => of(scene, i).toLowerCase().includes(word)) ||
    attributesOf(scene, i).some(text => text.toLowerCase().includes(word));
}

// The events that match, in order of levels; null for an empty query. "quoted words" stay together.
function matching(scene, query) {
  const words = (query.toLowerCase().match(/(?:[^\s"]+|"[^"]*")+/g) || [])
    .map(word => word.replaceAll('"', ""))
    .filter(word => word);
  if (!words.length) return null;
  const terms = words.map(termOf),
    found = [];
  for (let i = 0; i < scene.size; i++) if (terms.every(term => term(scene, i))) found.push(i);
  return found.sort((a, b) => scene.level[a] - scene.level[b]);
}
