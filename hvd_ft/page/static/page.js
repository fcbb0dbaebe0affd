// Draws /state.json, again and again. Every text from the job is set as text, never as HTML.
"use strict";

const STATES = ["starting", "running", "waiting", "restarting", "replaying", "done"];
const LINKS = {ring: "sums", ring_back: "the ring's answers", gather: "gathered operations", mirror: "op log, snapshots"};
const EVERY_MS = 1000, SHOWN_SECONDS = 600;
const byId = (id) => document.getElementById(id);

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function svg(name, attributes, text = "") {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.textContent = text;
  return made;
}

const seconds = (value) => value === null ? "" : value < 100 ? `${value.toFixed(1)} s` : `${Math.round(value / 60)} min`;
const counted = (count, one, several) => `${count} ${count === 1 ? one : several}`;

function bytes(value) {
  const power = value < 2 ** 20 ? 1 : value < 2 ** 30 ? 2 : 3;
  return `${(value / 1024 ** power).toFixed(power === 1 ? 0 : 1)} ${["KiB", "MiB", "GiB"][power - 1]}`;
}

// What has not changed stays the same element: a click, a selection or the focus on it is not lost.
function show(parent, children) {
  children.forEach((child, at) => {
    const old = parent.childNodes[at];
    if (!old) parent.append(child);
    else if (old.isEqualNode(child)) return;
    else if (old.nodeName === "TR") show(old, [...child.childNodes]);
    else old.replaceWith(child);
  });
  while (parent.childNodes.length > children.length) parent.lastChild.remove();
}

function table(id, heads, rows) {
  const cell = (name, [content, number]) => element(name, number ? {class: "number"} : {}, content);
  const head = element("tr", {}, ...heads.map((head) => cell("th", head)));
  show(byId(id), [head, ...rows.map((row) => element("tr", {}, ...row.map((each) => cell("td", each))))]);
}

// The share of its time that a rank has waited for slower ones: the slow rank waits least.
function waited(times) {
  const total = times.compute_seconds + times.wait_seconds + times.copy_seconds + times.network_seconds;
  return total ? `${Math.round(100 * times.wait_seconds / total)} %` : "";
}

function waitText(wait) {
  if (!wait) return "";
  const ranks = wait.ranks.length ? ` of rank ${wait.ranks.slice(0, 4).join(", ")}${wait.ranks.length > 4 ? ", …" : ""}` : "";
  return `${wait.kind}${wait.kind === "rank" ? ranks.replace(" of rank", "") : ranks}`;
}

function linkText(link) {
  if (link.state === "stalled") return `stalled for ${seconds(link.stalled_seconds)}`;
  return link.state === "unknown" ? "unknown: a host does not answer" : "open";
}

function headline(state) {
  const job = state.status;
  if (!job) return "the job has not begun yet";
  const words = [state.ended ? "the job has ended" : job.state, `step ${job.step}`];
  if (job.steps_per_second !== null) words.push(`${job.steps_per_second.toFixed(2)} steps/s`);
  words.push(counted(job.size, "rank", "ranks"), counted(job.recoveries.length, "recovery", "recoveries"), `generation ${job.generation}`);
  if (job.checkpoints.latest_seconds_ago !== null) words.push(`checkpoint ${seconds(job.checkpoints.latest_seconds_ago)} ago`);
  if (job.diverged) words.push(counted(job.diverged, "divergence", "divergences"));
  return words.join(" · ");
}

function drawPicture(state) {
  const ranks = Object.keys(state.history).map(Number).sort((a, b) => a - b);
  const width = 1000, left = 60, row = 18, height = ranks.length * row + 22;
  const picture = svg("svg", {viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "each rank's states over time"});
  const first = Math.min(...ranks.map((rank) => state.history[rank][0].begin), state.now - 60);
  const begin = Math.max(first, state.now - SHOWN_SECONDS);
  const x = (time) => left + (Math.max(time, begin) - begin) / (state.now - begin) * (width - left - 6);
  ranks.forEach((rank, at) => {
    picture.append(svg("text", {x: 6, y: at * row + 14}, `rank ${rank}`));
    for (const span of state.history[rank]) {
      if (span.end < begin) continue;
      const bar = svg("rect", {x: x(span.begin), y: at * row + 3, height: row - 6, class: span.state, width: Math.max(x(span.end) - x(span.begin), 1)});
      bar.append(svg("title", {}, `rank ${rank} ${span.state}, incarnation ${span.incarnation}, ${seconds(span.end - span.begin)}`));
      picture.append(bar);
    }
  });
  for (let part = 0; part <= 4; ++part) {
    const ago = (state.now - begin) * (1 - part / 4);
    picture.append(svg("text", {x: left + part / 4 * (width - left - 6), y: height - 6, "text-anchor": part === 4 ? "end" : part ? "middle" : "start"}, ago < 1 ? "now" : `${seconds(ago)} ago`));
  }
  byId("picture").replaceChildren(picture);
}

async function kill(rank) {
  const told = byId("told");
  try {
    const answer = await fetch("kill", {method: "POST", body: JSON.stringify({rank}), headers: {Authorization: `Bearer ${byId("token").value}`}});
    told.textContent = await answer.text();
  } catch (error) {
    told.textContent = `not sent: ${error.message}`;
  }
}

function draw(state) {
  const job = state.status;
  byId("headline").textContent = headline(state);
  byId("headline").className = "";
  if (!job) return;
  byId("job").textContent = job.job;
  document.title = `${job.state} – ${job.job} – hvd_ft`;
  drawPicture(state);
  const withToken = byId("token").value !== "";
  table("ranks", [["rank", 1], ["host"], ["state"], ["for", 1], ["step", 1], ["steps/s", 1], ["waited", 1], ["restarts", 1], ["waits for"], ["drill"]], job.ranks.map((rank) => {
    const button = element("button", {type: "button", id: `kill-${rank.rank}`}, "kill");
    button.disabled = !withToken || !rank.pid || state.ended;
    button.title = withToken ? "kill this rank's worker; it comes back" : "give the token first";
    button.addEventListener("click", () => kill(rank.rank));
    return [[`${rank.rank}`, 1], [rank.host ?? "?"], [element("span", {}, element("span", {class: `state ${rank.state}`}), rank.state)], [seconds(rank.state_seconds), 1],
      [`${rank.step}`, 1], [rank.steps_per_second === null ? "" : rank.steps_per_second.toFixed(2), 1], [waited(rank.times), 1], [`${rank.incarnation}`, 1], [waitText(rank.waits_for)], [button]];
  }));
  table("recoveries", [["rank", 1], ["cause"], ["ago", 1], ["parts"], ["total", 1]], [...job.recoveries].reverse().slice(0, 20).map((each) =>
    [[`${each.rank}`, 1], [each.cause], [seconds(each.seconds_ago), 1], [Object.entries(each.parts).map(([name, value]) => `${name} ${seconds(value)}`).join(", ")],
      [each.total_seconds === null ? "under way" : seconds(each.total_seconds), 1]]));
  byId("links-section").hidden = state.links.length === 0;
  table("links", [["from"], ["to"], ["carries"], ["state"], ["transfers", 1]], [...state.links].sort((a, b) => (a.state === "open") - (b.state === "open")).map((link) =>
    [[link.source], [link.dest], [LINKS[link.kind] ?? link.kind], [element("span", {}, element("span", {class: `state link-${link.state}`}), linkText(link))], [`${link.transfers}`, 1]]));
  table("memory", [["node of rank", 1], ["in use", 1], ["most", 1], ["limit", 1], ["snapshots", 1], ["op log", 1], ["messages", 1]], job.memory.map((node) =>
    [[`${node.first_rank}`, 1], [bytes(node.total), 1], [bytes(node.most), 1], [bytes(node.limit), 1], [bytes(node.shared_state + node.private_state), 1], [bytes(node.log + node.kept), 1], [bytes(node.messages), 1]]));
}

async function refresh() {
  try {
    const answer = await fetch("state.json");
    draw(await answer.json());
  } catch (error) {
    byId("headline").textContent = "hvdft run does not answer: the job's command has ended, or the connection is lost";
    byId("headline").className = "stale";
  }
  setTimeout(refresh, EVERY_MS);
}

byId("legend").replaceChildren(...STATES.map((state) => element("span", {}, element("span", {class: `state ${state}`}), state)));
byId("drill").addEventListener("submit", (event) => event.preventDefault());
refresh();
