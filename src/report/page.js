// SPDX-License-Identifier: Apache-2.0
"use strict";
// Hover: the title of a mark, at once, beside the pointer.
const tip = document.body.appendChild(document.createElement("div"));
tip.id = "tip";
document.addEventListener("pointermove", (e) => {
  let n = e.target.closest("svg.chart *"), title;
  while (n && n.closest && !n.dataset.title && !(title = n.querySelector(":scope > title")))
    n = n.parentNode.closest("svg.chart *");
  if (title) {
    n.dataset.title = title.textContent;
    title.remove();
  }
  tip.style.display = n && n.dataset.title ? "block" : "none";
  if (!n) return;
  tip.textContent = n.dataset.title;
  tip.style.left = Math.max(0, Math.min(e.clientX + 12, innerWidth - tip.offsetWidth - 4)) + "px";
  tip.style.top = Math.max(0, e.clientY - tip.offsetHeight - 10) + "px";
});
// Paper has all rows of a table.
addEventListener("beforeprint", () => {
  for (const rows of document.querySelectorAll(".rows")) rows.open = true;
});
// The contents are a side bar where the window has room for one, as the style says.
const room = matchMedia("(min-width:1500px)");
const contents = () => { document.querySelector("nav details").open = room.matches; };
room.addEventListener("change", contents);
contents();
// Zoom: all panels of a chart have the same x axis, so they show the same part of it.
const show = (box, from, to) => {
  for (const plot of box.querySelectorAll(".plot")) {
    const w = +plot.getAttribute("width"), left = +plot.getAttribute("x");
    const lo = +plot.dataset.lo, hi = +plot.dataset.hi;
    plot.setAttribute("viewBox", `${from * w} 0 ${(to - from) * w} ${plot.getAttribute("height")}`);
    for (const t of plot.parentNode.querySelectorAll(".tick")) {
      const at = from + (to - from) * (t.getAttribute("x") - left) / w;
      t.textContent = +(lo + at * (hi - lo)).toPrecision(5);
    }
  }
  box.dataset.from = from;
  box.dataset.to = to;
};
for (const box of document.querySelectorAll(".zoom")) {
  let start = null;
  const place = (e, plot) => {
    const r = plot.getBoundingClientRect(), from = +(box.dataset.from || 0), to = +(box.dataset.to || 1);
    return from + (to - from) * Math.max(0, Math.min(1, (e.clientX - r.left) / r.width));
  };
  box.addEventListener("pointerdown", (e) => {
    const plot = e.target.closest(".plot");
    start = plot && { plot, at: place(e, plot) };
  });
  box.addEventListener("pointerup", (e) => {
    if (!start) return;
    const at = place(e, start.plot), from = Math.min(at, start.at), to = Math.max(at, start.at);
    if (to - from > 0.002) show(box, from, to);
    start = null;
  });
  box.addEventListener("dblclick", () => show(box, 0, 1));
}
// Folding: all statements at once.
const button = document.createElement("button");
button.textContent = "show or hide all SQL";
button.onclick = () => {
  const all = [...document.querySelectorAll(".sql")], open = !all[0].open;
  for (const d of all) d.open = open;
};
if (document.querySelector(".sql")) document.querySelector("nav details").append(button);
// A link to a folded part opens it.
const unfold = () => {
  const part = location.hash && document.getElementById(location.hash.slice(1));
  if (part && part.tagName === "DETAILS") part.open = true;
};
addEventListener("hashchange", unfold);
unfold();
