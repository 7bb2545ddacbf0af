"use strict";
// Tells the numbers of the node that is pointed at, clicked on or walked to, and shows its lineage.
const rows = new Map(JSON.parse(document.getElementById("nodes").textContent).map((r) => [r[0], r]));
const children = new Map();
for (const [id, parent] of rows.values()) {
  if (rows.has(parent)) {
    children.set(parent, [...(children.get(parent) ?? []), id]);
  }
}
const tree = document.getElementById("tree");
const circle = (id) => document.getElementById("n" + id);
const place = (id) => [circle(id).cx.baseVal.value, circle(id).cy.baseVal.value];
const numberOf = (event) => {
  const match = /^n(\d+)$/.exec(event.target.id ?? "");
  return match ? Number(match[1]) : null;
};
const fields = [...document.querySelectorAll("#details dt")].map((name) => {
  const pair = document.createElement("div");
  const value = name.nextElementSibling;
  name.before(pair);
  pair.append(name, value);
  return value;
});
let selected = BEGIN;

function tell(id) {
  const [, parent, ...words] = rows.get(id);
  const from = parent === null ? "" : `, made from node ${parent}`;
  document.getElementById("node").textContent = `Node ${id}${from}`;
  words.forEach((word, i) => { fields[i].textContent = word; });
  const points = [];
  for (let at = id; rows.has(at); at = rows.get(at)[1]) {
    points.push(place(at).join(" "));
  }
  document.getElementById("lineage").setAttribute("d", "M" + points.join("L"));
}

function select(id) {
  circle(selected).classList.remove("selected");
  selected = id;
  circle(id).classList.add("selected");
  tell(id);
}

function remember() { // what is selected, for when the page is loaded again
  history.replaceState(null, "", "#node-" + selected);
}

function reveal(id) {
  const box = document.getElementById("scroll");
  const [x] = place(id);
  if (x < box.scrollLeft + 20 || x > box.scrollLeft + box.clientWidth - 20) {
    box.scrollLeft = x - box.clientWidth / 2;
  }
}

function beside(id, step) {
  const [x, y] = place(id);
  const level = [...rows.keys()].filter((other) => place(other)[0] === x);
  level.sort((a, b) => place(a)[1] - place(b)[1]);
  return level[level.indexOf(id) + step] ?? id;
}

tree.addEventListener("click", (event) => {
  const id = numberOf(event);
  if (id !== null) {
    select(id);
    remember();
  }
});
tree.addEventListener("mouseover", (event) => {
  const id = numberOf(event);
  if (id !== null) tell(id);
});
tree.addEventListener("mouseleave", () => tell(selected));
tree.addEventListener("keydown", (event) => {
  const next = {
    ArrowLeft: () => (rows.has(rows.get(selected)[1]) ? rows.get(selected)[1] : selected),
    ArrowRight: () => (children.get(selected) ?? [selected])[0],
    ArrowUp: () => beside(selected, -1),
    ArrowDown: () => beside(selected, 1),
  }[event.key];
  if (next) {
    event.preventDefault();
    select(next());
    reveal(selected);
    remember();
  }
});
const asked = Number(/^#node-(\d+)$/.exec(location.hash)?.[1] ?? BEGIN);
select(rows.has(asked) ? asked : BEGIN);
reveal(selected);
