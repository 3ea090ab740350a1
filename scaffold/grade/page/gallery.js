"use strict";
const form = document.querySelector("form");
const words = form.querySelector("[name=words]");
const version = form.querySelector("[name=version]");
const grade = form.querySelector("[name=grade]");
const count = form.querySelector("output");
const rows = [...document.querySelectorAll("tbody tr")];

function show() {
  const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const row of rows) {
    const text = row.textContent.toLowerCase();
    const fits = wanted.every((word) => text.includes(word)) && (!grade.value || row.dataset.grade === grade.value);
    row.hidden = !fits;
    if (fits && (!version.value || row.dataset.version === version.value)) shown += 1;
  }
  for (const section of document.querySelectorAll("section")) {
    const other = version.value && section.dataset.version !== version.value;
    section.hidden = other || !section.querySelector("tbody tr:not([hidden])");
  }
  count.textContent = `${shown} pipelines`;
}

form.hidden = false;
form.addEventListener("input", show);
form.addEventListener("submit", (event) => event.preventDefault());
show();
