// Startup: load the first scene from the page or the server, and show it.

async function loadScene(about, index, window, only) {
  if (!about.serve) {
    return unpacked(await inflated(bytesOfBase64($(`scene-${index}`).textContent.trim())));
  }
  const asked = new URLSearchParams({ computation: String(index) });
  if (window) {
    asked.set("from", String(Math.floor(window[0])));
    asked.set("to", String(Math.ceil(window[1])));
  }
  if (only) asked.set(only.direction, only.name);
  return unpacked(await inflated(await ask(about, `scene?${asked}`)));
}

async function askJson(about, path) {
  return JSON.parse(new TextDecoder().decode(await ask(about, path)));
}

async function ask(about, path) {
  const answer = await fetch(path, { headers: { "X-Happened-Token": about.serve.token }, cache: "no-store" });
  if (!answer.ok) throw new Error(await answer.text());
  return answer.arrayBuffer();
}

// The state encoded in the URL's hash; defaults for what it does not contain.
function stateOf(hash) {
  const given = new URLSearchParams(hash.slice(1));
  const look = (given.get("look") || "").split(",").map(Number);
  return {
    computation: Number(given.get("c") || 0),
    view: given.get("view"),
    axis: given.get("axis"),
    quiet: given.get("quiet") === "1",
    query: given.get("find"),
    step: Number(given.get("step") || 0),
    chosen: given.getAll("event").slice(0, 2),
    hidden: given.getAll("hide"),
    collapsed: given.getAll("group"),
    port: look.length === 3 && look.every(Number.isFinite) && look[1] > look[0] ? look : null,
    window: look.length === 3 && look.every(Number.isFinite) ? look.slice(0, 2) : undefined,
  };
}

// The state of the application as parameters for the URL's hash.
function addressOf(app) {
  const state = new URLSearchParams();
  if (app.about.computations.length > 1) state.set("c", String(app.computation));
  if (app.view !== "space") state.set("view", app.view);
  if (app.axis !== "logical") state.set("axis", app.axis);
  if (app.quiet) state.set("quiet", "1");
  if (app.query) state.set("find", app.query);
  if (app.story) state.set("step", app.story.step);
  const look = [app.port.x, app.port.x + app.room / app.port.k, app.port.y];
  state.set("look", look.map(value => String(Number(value.toPrecision(7)))).join(","));
  for (const i of app.chosen) state.append("event", app.scene.name(i));
  for (const name of app.hidden) state.append("hide", name);
  for (const group of app.collapsed) state.append("group", group);
  return state;
}

async function start() {
  const about = JSON.parse($("about").textContent);
  const app = new App(about);
  $("title").textContent = about.title;
  $("computation").replaceChildren(
    ...about.computations.map((each, n) =>
      element(
        "option",
        { value: n },
        `${each.name || "unnamed"} · ${each.events.toLocaleString("en")}${each.faults ? ` · ${count(each.faults, "fault")}` : ""}`,
      ),
    ),
  );
  $("computation").hidden = about.computations.length < 2;
  if (!about.computations.length) {
    $("notice").textContent = ["There are no events to show.", ...about.notes, ...about.quarantine].join(" ");
    if (about.serve) awaitEvents(about);
    return app;
  }
  const state = stateOf(location.hash);
  const index = about.computations[state.computation] ? state.computation : 0;
  listen(app);
  await app.open(index, state);
  window.addEventListener("hashchange", () => {
    const next = stateOf(location.hash);
    if (about.computations[next.computation]) app.open(next.computation, next);
  });
  if (about.serve) watch(app);
  return app;
}

// A trace that is being written may have no events yet: poll until it has.
function awaitEvents(about) {
  const look = async () => {
    try {
      const said = await askJson(about, `status?version=${about.serve.version}`);
      if (said.about && said.about.computations.length) location.reload();
    } catch (error) {
      $("notice").textContent = "The server has gone.";
    }
    setTimeout(look, about.serve.every);
  };
  setTimeout(look, about.serve.every);
}

// Poll the server and load the window again if the trace has grown.
function watch(app) {
  let version = app.about.serve.version;
  const look = async () => {
    try {
      const said = await askJson(app.about, `status?version=${version}`);
      $("notice").textContent = said.trouble || "";
      if (said.version !== version) {
        version = said.version;
        app.found = null;
        Object.assign(app.about, said.about);
        const end = app.scene.depth,
          atEnd = app.port.x + app.room / app.port.k >= end;
        if (!app.only) await app.loadWindow(app.port.x, app.port.x + app.room / app.port.k);
        if (atEnd) {
          app.port.x += app.scene.depth - end;
          app.changed();
        }
      }
    } catch (error) {
      $("notice").textContent = "The server has gone; what is shown is what was loaded.";
    }
    setTimeout(look, app.about.serve.every);
  };
  setTimeout(look, app.about.serve.every);
}

// An API for tests and the browser's console: read the state, select events by name.
function exposed(app) {
  const known = name => {
    const i = app.scene.find(name);
    if (i < 0) throw new Error(`no event ${name} here`);
    return i;
  };
  const named = test => {
    const found = [];
    for (let i = 0; i < app.scene.size; i++) if (test(i)) found.push(app.scene.name(i));
    return found;
  };
  const shown = kind => () => named(i => app.classOf(i) === kind);
  return Object.freeze({
    events: () => named(() => true),
    select: (...names) => app.choose(names.map(known), { reveal: true }),
    past: shown(PAST),
    future: shown(FUTURE),
    concurrent: shown(DIM),
    slice: (direction, name) => app.slice(direction, name && known(name)),
    told: () => app.told,
    relation: () => app.relation,
    path: () => app.path && app.path.map(i => app.scene.name(i)),
    waitedFor: name => app.scene.waitedFor(known(name)).map(i => app.scene.messageOf(i)),
    matches: () => app.matches && app.matches.map(i => app.scene.name(i)),
    found: () => app.found && { count: app.found.count, events: app.found.events.map(each => each.event) },
    at: name => {
      const box = app.canvas.getBoundingClientRect(),
        [x, y] = app.painter.place(known(name));
      return [box.left + x, box.top + y];
    },
    inView: () => app.eventsInView().map(i => app.scene.name(i)),
    look: (from, to) => app.lookAt(from, to),
    fit: () => app.fit(),
    pan: (dx, dy) => app.pan(dx, dy),
    held: () => app.story.holds.map(([arrival, until]) => [app.scene.level[arrival], until]),
    links: () => app.links.map(link => link.map(i => app.scene.name(i))),
    lines: () => {
      const { from, to } = app.picture.edges;
      return app.painter.linesShown.map(k => ({
        ends: [from[k], to[k]].map(i => app.scene.name(i)),
        points: app.painter.points(from[k], to[k], 400),
      }));
    },
    labels: () => app.painter.labels,
    places: () => named(() => true).map(name => [name, app.painter.place(known(name)), app.painter.radius]),
    frames: () => app.frames.splice(0),
    state: () => ({
      view: app.view,
      axis: app.axis,
      fault: app.fault,
      dense: app.painter.dense,
      port: { ...app.port },
      window: app.scene.window,
      depth: app.scene.depth,
    }),
  });
}

window.happened = {
  ready: start().then(app => {
    if (app.scene) window.happened = Object.assign({ ready: Promise.resolve(true) }, exposed(app));
    document.documentElement.dataset.ready = "1";
    return true;
  }),
};
