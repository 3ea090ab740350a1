"use strict";
// Sorting and filtering of the table; the page says everything without them.
(() => {
  const table = document.querySelector("table.contracts");
  if (!table) return;
  const bodies = [...table.querySelectorAll("tbody.contract")];
  const filter = document.querySelector(".filter");
  const said = document.querySelector("[role=status]");

  filter.hidden = false;
  for (const button of filter.querySelectorAll("button")) {
    button.addEventListener("click", () => {
      for (const other of filter.querySelectorAll("button")) other.setAttribute("aria-pressed", String(other === button));
      const wanted = button.dataset.show;
      for (const body of bodies) body.hidden = wanted !== "all" && body.dataset.status !== wanted;
      said.textContent = `${bodies.filter((body) => !body.hidden).length} contracts shown`;
    });
  }

  // Numbers first, infinity last of them, then NaN, then what has no number.
  const rank = (key) => (key === "" ? 2 : key === "nan" ? 1 : 0);
  const number = (key) => (key === "inf" ? Infinity : key === "-inf" ? -Infinity : Number(key));
  const numeric = (a, b) => {
    if (rank(a) || rank(b)) return rank(a) - rank(b);
    const [x, y] = [number(a), number(b)];
    return x < y ? -1 : x > y ? 1 : 0;
  };
  const textual = (a, b) => a.localeCompare(b, "en");

  table.querySelectorAll("thead th").forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const other of table.querySelectorAll("thead th")) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const compare = head.dataset.sort === "number" ? numeric : textual;
      const key = (body) => body.rows[0].cells[column].dataset.key;
      bodies.sort((a, b) => (down ? -1 : 1) * compare(key(a), key(b)));
      table.append(...bodies);
    });
  });
})();
