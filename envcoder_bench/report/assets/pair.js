// Why one of two candidates is better: their rows, where in the episode they differ, components, videos and functions.
const comparePair = ({ data, $, make, chart, chips, round, colorOf }) => {
  const selects = [$("pair-first"), $("pair-second")], ranking = $("ranking");
  if (!selects[0]) return;
  const rows = [...ranking.tBodies[0].rows];  // as the candidates, before anyone sorts them
  selects.forEach((select, side) => {
    select.append(...data.candidates.map(({ name }, k) => make("option", { value: k, text: name })));
    select.value = data.pair[side];
  });
  const colors = (a, b) => [a.color, a.color === b.color ? "var(--c1)" : b.color];

  // what results/pairs.py says of two rows; undefined where the page does not have it
  const of = (table, i, j) => {
    const [p, q] = [i, j].map((k) => data.pairs.rows.indexOf(k)).sort((x, y) => x - y);
    return p < 0 ? undefined : data.pairs[table][q][p];
  };
  function verdict(pair, a, b) {
    if (a.fitness === null || b.fitness === null) return [a, b].filter((own) => own.fitness === null).map(({ name }) => `${name} has no fitness.`).join(" ");
    const words = data.pairs && of("texts", ...pair);
    if (words) return words;
    const [more, less] = a.fitness >= b.fitness ? [a, b] : [b, a], gap = more.fitness - less.fitness;
    return `${gap ? `${more.name} is ahead of ${less.name} by ${round(gap, 3)}.` : "Their fitness is equal."} How sure this is: envcoder-bench compare ${data.folder} ${a.name} ${b.name}`;
  }

  // all pairs: hover a cell to read it, tap it to see why
  function matrix() {
    const table = $("pairs"), shown = data.pairs ? data.pairs.rows : [];
    $("pairs-all").hidden = shown.length < 3;
    if (shown.length < 3) return;
    const note = $("pairs-text"), idle = note.textContent, short = (k) => rows[k].cells[0].textContent.trim() || "–";
    const signs = { "+": ["better", "+"], "-": ["worse", "-"], "": ["", ""] }, swap = { "+": "-", "-": "+", "": "" };
    const cell = (i, j) => {
      if (i === j) return make("td", { class: "same" });
      const sign = shown.indexOf(i) < shown.indexOf(j) ? of("verdicts", i, j) : swap[of("verdicts", i, j)], [kind, mark] = signs[sign];
      const words = of("texts", i, j);
      return make("td", {}, make("button", { type: "button", class: kind, title: words, text: mark || "·", "aria-label": words,
        onmouseenter: () => { note.textContent = words; }, onfocus: () => { note.textContent = words; }, onmouseleave: () => { note.textContent = idle; },
        onclick: () => { selects[0].value = i; selects[1].value = j; draw(); } }));
    };
    const head = make("tr", {}, make("th"), ...shown.map((k) => make("th", { title: data.candidates[k].name, text: short(k) })));
    table.replaceChildren(head, ...shown.map((i) => make("tr", {}, make("th", { scope: "row", text: `${short(i)} ${data.candidates[i].name}` }), ...shown.map((j) => cell(i, j)))));
  }

  function tableRows(pair) {
    const head = make("tr", {}, ...[...ranking.tHead.rows[0].cells].map((cell) => make("th", { class: cell.className, text: (cell.querySelector("button:not(.help)") || cell.firstChild).textContent })));
    const copies = pair.map((k) => rows[k].cloneNode(true));
    copies.forEach((row) => { row.hidden = false; row.querySelectorAll("button").forEach((button) => button.replaceWith(button.classList.contains("letters") ? button.textContent : "")); });
    $("pair-rows").replaceChildren(head, ...copies);
  }

  // mean of the seeds with a band between the least and the greatest one
  const spread = (series, label, color, seeds) => {
    const over = (f) => seeds[0].map((_, k) => { const values = seeds.map((own) => own[k]).filter((v) => v !== null); return values.length ? f(values) : null; });
    const mean = over((values) => values.reduce((x, y) => x + y) / values.length), at = series.length;
    if (seeds.length > 1) {
      series.push({ label, values: over((values) => Math.max(...values)), color: "#0000", quiet: true, band: at + 1, fill: color });
      series.push({ label, values: over((values) => Math.min(...values)), color: "#0000", quiet: true });
    }
    series.push({ label, values: mean, color, width: 2 });
    return mean;
  };

  // when the difference passes a tenth and nine tenths of all of it, and how many episodes end early
  function where(gaps, ends, names, active) {
    let sum = 0;
    const so_far = gaps.map((gap, k) => (sum += (gap || 0) * (ends[k] - (ends[k - 1] || 0)))), until = (share) => so_far.findLastIndex((one) => one / sum < share) + 1;
    const [begin, end] = [until(0.1), until(0.9)];
    const seconds = (k) => round(k < 0 ? 0 : ends[k], 3);
    const words = !sum ? [] : end - begin > 0.7 * gaps.length ? ["The difference arises over the whole episode."]
      : [`Most of the difference, 80 %, arises from ${seconds(begin - 1)} s to ${seconds(end)} s.`];
    const early = names.map((name, side) => [name, 100 * (1 - active[side].at(-1))]).filter(([, share]) => share >= 0.5);
    return words.concat(early.map(([name, share]) => `${round(share, 2)} % of the episodes of ${name} end early.`)).join(" ");
  }

  function episode(a, b) {
    const recorded = data.step_fitness, [one, other] = recorded ? [recorded.of[a.name], recorded.of[b.name]] : [];
    $("pair-steps").hidden = !one || !other || one.time !== other.time;
    if ($("pair-steps").hidden) return;
    const ends = recorded.times[one.time], x = ends.map((end, k) => (end + (ends[k - 1] || 0)) / 2), [color, second] = colors(a, b);
    const options = { x, height: 240, xLabel: "time in the episode, s", xTicks: (t) => round(t, 3), xHover: (t) => `at ${round(t, 3)} s` };
    const fitness = [], mean = [spread(fitness, a.name, color, Object.values(one.fitness)), spread(fitness, b.name, second, Object.values(other.fitness))];
    chart($("pair-fitness"), { ...options, series: fitness, yLabel: "fitness of a step" });
    const common = Object.keys(one.fitness).filter((seed) => seed in other.fitness), minus = (p, q) => p.map((v, k) => (v === null || q[k] === null ? null : v - q[k]));
    const zero = { label: "", values: x.map(() => 0), color: "var(--soft)", dash: [4, 4], width: 1, quiet: true }, gap = [zero];
    const gaps = spread(gap, "difference", "var(--accent)", common.length ? common.map((seed) => minus(one.fitness[seed], other.fitness[seed])) : [minus(...mean)]);
    chart($("pair-gap"), { ...options, series: gap, yLabel: "difference" });
    const share = (own) => Object.keys(own.fitness).map((seed) => own.active[seed] || x.map(() => 1)), active = [];
    const lasting = [spread(active, a.name, color, share(one)), spread(active, b.name, second, share(other))];
    const holder = $("pair-active").parentNode;
    holder.hidden = !Object.keys({ ...one.active, ...other.active }).length;
    if (!holder.hidden) chart($("pair-active"), { ...options, series: active, yLabel: "share of episodes not over" });
    $("pair-where").textContent = where(gaps, ends, [a.name, b.name], lasting);
  }

  // components of the same name in one colour
  function components(a, b) {
    const of = (name) => (data.components ? data.components.candidates.find((own) => own.name === name) : null), both = [of(a.name), of(b.name)];
    $("pair-components").hidden = !both.some(Boolean);
    if ($("pair-components").hidden) return;
    const lists = both.map((own) => (own ? own.series : [])), has = (list, name) => list.some((line) => line.name === name);
    const names = [...new Set(lists.flat().map((line) => line.name))].sort((p, q) => lists.filter((list) => has(list, q)).length - lists.filter((list) => has(list, p)).length);
    const [x, ...values] = uPlot.join(both.filter(Boolean).map((own) => [own.x, ...own.series.map((line) => line.values)]));
    const series = both.flatMap((own, side) => (own ? own.series.map((line) => ({ line, side, owner: own.name })) : [])).map(({ line, side, owner }, k) => ({
      label: `${line.name}, ${owner}`, part: line.name, values: values[k].map((v) => v ?? null), color: colorOf(names.indexOf(line.name)), dash: side ? [6, 4] : undefined, width: 2, show: names.indexOf(line.name) < 8 }));
    const plot = chart($("pair-parts"), { x, series, xLabel: "environment steps", yLabel: "mean per step", height: 300 });
    chips($("pair-chips"), names.map((name, k) => ({ name, color: colorOf(k), on: k < 8 })), (name, on) => series.forEach((own, k) => own.part === name && plot.setSeries(k + 1, { show: on })));
    $("pair-lines").textContent = `Solid: ${a.name}. Dashed: ${b.name}.`;
  }

  function videos(a, b) {
    const films = [a, b].map(({ name }) => data.videos && data.videos.episodes.find((own) => own.name === name)).filter((own) => own && own.url);
    $("pair-videos").hidden = !films.length;
    const players = films.map((own) => { const video = make("video", { src: own.url, controls: "", playsinline: "", "aria-label": own.name, poster: own.poster && `data:image/jpeg;base64,${own.poster}` }); video.muted = true; return video; });
    $("pair-films").replaceChildren(...films.map((own, k) => make("figure", {}, players[k], make("figcaption", {}, make("b", { text: own.name }), make("span", { text: own.summary })))));
    players.forEach((video, k) => {  // what one does, the other does
      const other = players[1 - k];
      if (!other) return;
      const follow = () => { if (Math.abs(other.currentTime - video.currentTime) > 0.05) other.currentTime = video.currentTime; };
      video.addEventListener("play", () => { follow(); other.play().catch(() => {}); });
      video.addEventListener("pause", () => other.pause());
      video.addEventListener("seeking", follow);
    });
  }

  // the lines of a source, as they are coloured in its details
  const linesOf = (k) => {
    const pre = document.querySelector(`#candidate-${k} .source pre`);
    if (!pre) return null;
    const lines = [[]], walker = document.createTreeWalker(pre, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const { data: content, parentNode } = walker.currentNode;
      if (parentNode.className !== "linenos") content.split("\n").forEach((text, n) => { if (n) lines.push([]); if (text) lines.at(-1).push([parentNode === pre ? "" : parentNode.className, text]); });
    }
    while (lines.length > 1 && !lines.at(-1).length) lines.pop();
    return lines.map((parts, n) => ({ number: n + 1, parts, text: parts.map(([, text]) => text).join("") }));
  };

  // the longest common subsequence of lines, as runs of [lines only of a, lines only of b, common lines]
  const align = (a, b) => {
    const same = (i, j) => i < a.length && j < b.length && a[i].text === b[j].text, runs = [];
    const common = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
    for (let i = a.length - 1; i >= 0; i -= 1) for (let j = b.length - 1; j >= 0; j -= 1) common[i][j] = same(i, j) ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1]);
    for (let i = 0, j = 0; i < a.length || j < b.length;) {
      const run = [[], [], []];
      while (i + j < a.length + b.length && !same(i, j)) {
        if (i < a.length && (j === b.length || common[i + 1][j] >= common[i][j + 1])) run[0].push(a[i++]); else run[1].push(b[j++]);
      }
      while (same(i, j)) run[2].push([a[i++], b[j++]]);
      runs.push(run);
    }
    return runs;
  };

  // a line of the differences; if most of it is in the other one, too, the rest is marked
  const shownLine = (line, other, kind) => {
    let from = 0, to = line.text.length, rest = other ? other.text.length : 0;
    while (from < Math.min(to, rest) && line.text[from] === other.text[from]) from += 1;
    while (to > from && rest > from && line.text[to - 1] === other.text[rest - 1]) { to -= 1; rest -= 1; }
    const marks = other && 2 * (from + line.text.length - to) > Math.max(line.text.length, other.text.length);
    let at = 0;
    const spans = line.parts.flatMap(([token, text]) => {
      const cuts = [0, from - at, to - at, text.length].map((cut) => Math.max(0, Math.min(text.length, cut)));
      at += text.length;
      return [0, 1, 2].map((k) => make("span", { class: k === 1 && marks ? `${token} hot` : token, text: text.slice(cuts[k], cuts[k + 1]) }));
    }).filter((span) => span.textContent);
    return make("div", { class: kind }, make("span", { class: "linenos", text: line.number }), ...spans);
  };

  function functions(pair, a, b) {
    const host = $("pair-diff"), note = $("pair-kinds"), sources = pair.map(linesOf), kinds = pair.map((k) => Object.keys(data.functions[k])), whole = $("pair-whole").checked;
    host.replaceChildren();
    const without = [a, b].filter((_, side) => !sources[side]);
    if (without.length) { note.textContent = without.map(({ name }) => `There is no source of ${name}.`).join(" "); return; }
    const both = kinds[0].filter((kind) => kinds[1].includes(kind));
    const alone = [a, b].map(({ name }, side) => [name, kinds[side].filter((kind) => !both.includes(kind))]).filter(([, only]) => only.length).map(([name, only]) => `Only ${name} defines ${only.join(", ")}.`);
    note.textContent = whole ? "" : [both.length ? `Compared: ${both.join(", ")}, and what they use.` : "They define none of the same functions.", ...alone].join(" ");
    if (!whole && !both.length) return;
    const shown = sources.map((lines, side) => {
      if (whole) return lines;
      const ranges = new Map(both.flatMap((kind) => data.functions[pair[side]][kind]));  // in the order of the kinds, not of the file
      return [...ranges].flatMap(([begin, end]) => lines.slice(begin - 1, end));
    });
    const runs = align(...shown), near = 3;  // lines around each change
    if (!runs.some(([removed, added]) => removed.length || added.length)) { host.append(make("p", { class: "note", text: "They are equal." })); return; }
    const grid = make("div", { class: "pair-lines" }, ...[a, b].map(({ name }) => make("div", { class: "title", text: name })));
    const equal = (lines) => { if (lines.length) grid.append(...[0, 1].map((side) => make("div", { class: side ? "again" : "" }, ...lines.map((both) => shownLine(both[side], null, ""))))); };
    runs.forEach(([removed, added, common], n) => {
      if (removed.length || added.length) grid.append(make("div", {}, ...removed.map((line, k) => shownLine(line, added[k], "gd"))), make("div", {}, ...added.map((line, k) => shownLine(line, removed[k], "gi"))));
      const [after, before] = [n || removed.length || added.length ? near : 0, n + 1 < runs.length ? near : 0];
      if (common.length <= after + before) { equal(common); return; }
      equal(common.slice(0, after));
      grid.append(make("div", { class: "gu", text: "…" }));
      equal(before ? common.slice(-before) : []);
    });
    host.append(grid);
  }

  const draw = () => {
    const pair = selects.map((select) => Number(select.value)), [a, b] = pair.map((k) => data.candidates[k]);
    $("pair-verdict").textContent = pair[0] === pair[1] ? "Choose two candidates." : verdict(pair, a, b);
    tableRows(pair); episode(a, b); components(a, b); videos(a, b); functions(pair, a, b);
  };
  selects.forEach((select) => select.addEventListener("change", draw));
  $("pair-whole").addEventListener("change", draw);
  $("pair-swap").addEventListener("click", () => { const [a, b] = selects.map((select) => select.value); selects[0].value = b; selects[1].value = a; draw(); });
  if ($("target")) $("target").addEventListener("input", draw);
  rows.forEach((row, k) => row.querySelector(".name").append(make("button", { type: "button", class: "compare", title: `Compare ${data.candidates[k].name}`, text: "⇄", onclick: () => {
    if (selects[1].value === String(k)) selects[1].value = selects[0].value;
    selects[0].value = k;
    draw();
    $("pair-section").scrollIntoView();
  } })));
  matrix();
  draw();
};
