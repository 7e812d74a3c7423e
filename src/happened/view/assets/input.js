// Input from mouse, touch and keyboard.

function listen(app) {
  const { canvas } = app;
  const fingers = new Map();
  let moved = 0,
    pinch = 0;
  const place = event => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };

  canvas.addEventListener(
    "wheel",
    event => {
      event.preventDefault();
      const [px] = place(event),
        unit = event.deltaMode ? 16 : 1;
      if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY))
        app.pan(-(event.deltaX || event.deltaY) * unit, 0);
      else if (px < app.painter.left || event.altKey) app.pan(0, -event.deltaY * unit);
      else app.zoom(Math.exp(-event.deltaY * unit * (event.ctrlKey ? 0.01 : 0.002)), px);
    },
    { passive: false },
  );

  canvas.addEventListener("pointerdown", event => {
    canvas.focus({ preventScroll: true });
    canvas.setPointerCapture(event.pointerId);
    fingers.set(event.pointerId, place(event));
    if (fingers.size === 1) moved = 0;
    pinch = 0;
  });
  canvas.addEventListener("pointermove", event => {
    const [px, py] = place(event),
      before = fingers.get(event.pointerId);
    if (!before) return hover(app, px, py);
    fingers.set(event.pointerId, [px, py]);
    moved += Math.abs(px - before[0]) + Math.abs(py - before[1]);
    if (fingers.size === 2) {
      const [[ax, ay], [bx, by]] = [...fingers.values()],
        apart = Math.hypot(ax - bx, ay - by);
      if (pinch) app.zoom(apart / pinch, (ax + bx) / 2);
      pinch = apart;
    } else if (moved > 4) {
      hideTip();
      canvas.classList.add("dragging");
      app.pan(px - before[0], py - before[1]);
    }
    return undefined;
  });
  const lift = event => {
    if (!fingers.delete(event.pointerId)) return;
    canvas.classList.remove("dragging");
    if (event.type === "pointerup" && moved <= 4 && !fingers.size) click(app, event, ...place(event));
  };
  canvas.addEventListener("pointerup", lift);
  canvas.addEventListener("pointercancel", lift);
  canvas.addEventListener("pointerleave", () => {
    hideTip();
    app.hover = -1;
    app.changed();
  });
  canvas.addEventListener("dblclick", event => app.zoom(event.shiftKey ? 0.5 : 2, place(event)[0]));

  const travel = event => {
    if (event.buttons !== 1) return;
    const box = app.overview.getBoundingClientRect(),
      { picture, port } = app;
    const x = picture.start + ((event.clientX - box.left) / box.width) * (picture.end - picture.start);
    port.x = x - app.room / port.k / 2;
    app.changed();
  };
  app.overview.addEventListener("pointerdown", event => {
    app.overview.setPointerCapture(event.pointerId);
    travel(event);
  });
  app.overview.addEventListener("pointermove", travel);

  document.addEventListener("keydown", event => key(app, event));
  $("search").addEventListener("input", event => app.search(event.target.value));
  $("search").addEventListener("keydown", event => {
    if (event.key === "Enter") app.nextMatch(event.shiftKey ? -1 : 1);
    if (event.key === "Escape") {
      event.target.value = "";
      app.search("", false);
      canvas.focus();
    }
    event.stopPropagation();
  });
  for (const view of ["space", "hasse", "spans"]) {
    $(`view-${view}`).addEventListener("click", () => app.show(view));
  }
  $("axis").addEventListener("click", () => {
    app.axis = app.axis === "time" ? "logical" : "time";
    app.rebuild();
  });
  $("quiet").addEventListener("click", () => {
    app.quiet = !app.quiet;
    app.rebuild();
  });
  $("fit").addEventListener("click", () => app.fit());
  $("in").addEventListener("click", () => app.zoom(1.6));
  $("out").addEventListener("click", () => app.zoom(1 / 1.6));
  $("theme").addEventListener("click", () => switchTheme(app));
  $("picture").addEventListener("click", () => savePicture(app));
  $("help-open").addEventListener("click", () => $("help").showModal());
  $("help-close").addEventListener("click", () => $("help").close());
  $("computation").addEventListener("change", event => app.open(Number(event.target.value)));
  new ResizeObserver(() => {
    if (app.picture) {
      app.resize();
      app.drawOverview();
    }
  }).observe(canvas.parentElement);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    app.resize();
    app.drawOverview();
  });
}

function hover(app, px, py) {
  const i = app.painter.eventAt(px, py);
  const line = i < 0 ? app.painter.lineAt(px, py) : null;
  if (i !== app.hover) {
    app.hover = i;
    app.changed();
  }
  const named = px < app.painter.left && app.view !== "spans" && app.painter.laneAt(py) !== undefined;
  app.canvas.classList.toggle("pointing", i >= 0 || named);
  if (i < 0 && !line) return hideTip();
  const { scene } = app,
    tip = $("tip");
  const parts =
    i >= 0
      ? eventTip(app, i)
      : [
          element("b", {}, scene.messageOf(line[1]) || "cause"),
          element("span", {}, `${scene.name(line[0])} → ${scene.name(line[1])}`),
          scene.hasTime && !Number.isNaN(scene.time[line[1]] - scene.time[line[0]])
            ? element("span", { class: "dim" }, `took ${duration(scene.time[line[1]] - scene.time[line[0]])}`)
            : null,
        ];
  tip.replaceChildren(...parts.filter(part => part));
  tip.hidden = false;
  const box = app.canvas.getBoundingClientRect(),
    own = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(box.left + px + 14, innerWidth - own.width - 8))}px`;
  const below = box.top + py + 18;
  tip.style.top = `${below + own.height > innerHeight - 8 ? box.top + py - own.height - 12 : below}px`;
  return undefined;
}

function eventTip(app, i) {
  const { scene } = app;
  const lines = [element("b", {}, scene.name(i)), element("span", {}, scene.deed(i))];
  if (scene.label[i] >= 0)
    lines.push(element("span", { dir: "auto" }, scene.text(scene.label[i]).slice(0, 160)));
  if (scene.hasTime && !Number.isNaN(scene.time[i]))
    lines.push(element("span", { class: "dim" }, app.timeOf(i)));
  if (scene.arrival[i] >= 0 && i - scene.arrival[i] > 1) {
    const waited = scene
      .waitedFor(i)
      .slice(0, 3)
      .map(d => scene.messageOf(d))
      .join(", ");
    lines.push(
      element(
        "span",
        { class: "dim" },
        `held since ${scene.name(scene.arrival[i])}${waited ? `, for ${waited}` : ""}`,
      ),
    );
  }
  const attributes = attributesOf(scene, i);
  for (let k = 0; k < Math.min(attributes.length, 8); k += 2) {
    lines.push(
      element("span", { class: "dim", dir: "auto" }, `${attributes[k]}: ${attributes[k + 1].slice(0, 80)}`),
    );
  }
  if (attributes.length > 8)
    lines.push(element("span", { class: "dim" }, `${attributes.length / 2 - 4} more attributes`));
  return lines;
}

function hideTip() {
  $("tip").hidden = true;
}

function click(app, event, px, py) {
  if (px < app.painter.left && app.view !== "spans") return app.panels.showLane(app.painter.laneAt(py));
  let i = app.painter.eventAt(px, py);
  if (i < 0) {
    const line = app.painter.lineAt(px, py);
    if (line) i = line[1];
  }
  if (i < 0) return app.choose([]);
  const second = event.shiftKey || event.ctrlKey || event.metaKey || app.pinned;
  const first = app.chosen[app.chosen.length - 1];
  return app.choose(second && first !== undefined && first !== i ? [first, i] : [i]);
}

const KEYS = {
  "?": () => $("help").showModal(),
  "/": () => $("search").focus(),
  "+": app => app.zoom(1.6),
  "=": app => app.zoom(1.6),
  "-": app => app.zoom(1 / 1.6),
  0: app => app.fit(),
  f: app => app.fit(),
  h: app => app.show(app.view === "hasse" ? "space" : "hasse"),
  s: app => app.show(app.view === "spans" ? "space" : "spans"),
  t: () => $("axis").hidden || $("axis").click(),
  q: () => $("quiet").hidden || $("quiet").click(),
  d: app => switchTheme(app),
  n: app => app.nextMatch(1),
  N: app => app.nextMatch(-1),
  v: app => {
    if (app.scene.faults.length) app.showFault((app.fault + 1) % app.scene.faults.length);
  },
  p: app => app.pin(),
  c: app => app.showCritical(),
  Home: app => app.story && app.story.show(0),
  End: app => app.story && app.story.show(Infinity),
  m: app => followMessage(app),
  Escape: app => app.choose([]),
};

function key(app, event) {
  if (event.ctrlKey || event.metaKey || event.altKey || $("help").open || !app.picture) return;
  if (event.target.closest("select, input, textarea")) return;
  const arrow = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
  if (arrow && !event.target.closest("#tabs")) {
    event.preventDefault();
    if (app.story && arrow[0] && !event.shiftKey) return app.story.show(app.story.step + arrow[0]);
    if (event.shiftKey || !app.chosen.length) return app.pan(-arrow[0] * 80, -arrow[1] * 60);
    return step(app, ...arrow);
  }
  if (event.key === "Enter" && event.target === app.canvas && !app.chosen.length) {
    const [first] = app.eventsInView();
    return first === undefined ? undefined : app.choose([first]);
  }
  const act = KEYS[event.key];
  if (!act) return undefined;
  event.preventDefault();
  return act(app);
}

// Move the selection to the previous or next event of its process, or the nearest on the lane above or below.
function step(app, along, across) {
  const { scene, picture } = app,
    now = app.chosen[app.chosen.length - 1];
  let next = -1;
  if (app.view === "spans") {
    const row = picture.rows.findIndex(({ span }) => scene.span_first[span] === now);
    const found = picture.rows[row + (along || across)];
    next = found ? scene.span_first[found.span] : -1;
  } else if (along) {
    next = now + along;
    while (next >= 0 && next < scene.size && Number.isNaN(picture.x[next])) next += along;
    if (scene.process[next] !== scene.process[now]) next = -1;
  } else {
    for (
      let lane = picture.laneOf[scene.process[now]] + across;
      picture.lanes[lane] && next < 0;
      lane += across
    ) {
      let least = Infinity;
      for (const p of picture.lanes[lane].members) {
        for (let i = scene.offsets[p]; i < scene.offsets[p + 1]; i++) {
          const distance = Math.abs(picture.x[i] - picture.x[now]);
          if (distance < least) {
            least = distance;
            next = i;
          }
        }
      }
    }
  }
  if (next >= 0)
    app.choose(app.pinned && app.chosen.length ? [app.chosen[0], next] : [next], { reveal: true });
}

function followMessage(app) {
  const {
    scene,
    chosen: [i],
  } = app;
  if (i === undefined) return;
  const [next] = (scene.kind[i] === 0 ? scene.deliveriesOf(i) : scene.informants(i)).concat(scene.effectsOf(i));
  if (next !== undefined) app.choose([next], { reveal: true });
}

function switchTheme(app) {
  document.documentElement.dataset.theme = dark() ? "light" : "dark";
  app.resize();
  app.drawOverview();
  app.panels.update();
}

function savePicture(app) {
  app.canvas.toBlob(blob => {
    const link = element("a", { href: URL.createObjectURL(blob), download: "happened.png" });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  });
}
