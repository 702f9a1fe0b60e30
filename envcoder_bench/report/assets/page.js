"use strict";
// All text from candidates is set with textContent or drawn on a canvas, never parsed as HTML.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const $ = (id) => document.getElementById(id);
  const make = (tag, attributes = {}, ...children) => {
    const node = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes)) {
      if (key === "text") node.textContent = value;
      else if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
      else if (value !== null) node.setAttribute(key, value);
    }
    node.append(...children);
    return node;
  };
  // as report/words.py's number(): 1.7e-5, 0.0312, 1,234
  const round = (x, digits = 4) => {
    if (x === null || x === undefined || Number.isNaN(x)) return "–";
    const short = Number(x.toPrecision(digits));
    return short !== 0 && Math.abs(short) < 1e-3 ? short.toExponential() : short.toLocaleString("en-US", { maximumSignificantDigits: digits });
  };
  // colours are variables of page.css, which dark mode changes
  const ink = (color) => (color.startsWith("var(") ? getComputedStyle(document.documentElement).getPropertyValue(color.slice(4, -1)).trim() : color);
  const byName = new Map(data.candidates.map((own) => [own.name, own]));
  const charts = [];

  // the ranking: sort and filter its rows
  function ranking() {
    const table = $("ranking"), body = table && table.tBodies[0];
    if (!body) return;
    const rows = [...body.rows], heads = [...table.tHead.rows[0].cells];
    const value = (row, k, text) => (text ? row.cells[k].dataset.v.toLowerCase() : row.cells[k].dataset.v === "" ? null : Number(row.cells[k].dataset.v));
    heads.forEach((head, k) => {
      const button = head.querySelector("button");
      if (!button) return;
      button.addEventListener("click", () => {
        const first = head.dataset.first, now = head.getAttribute("aria-sort");
        const order = now === null ? first : now === "ascending" ? "descending" : "ascending";
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", order);
        const text = head.dataset.kind === "text", sign = order === "ascending" ? 1 : -1;
        const known = rows.filter((row) => text || value(row, k, text) !== null);
        const unknown = rows.filter((row) => !known.includes(row));
        known.sort((a, b) => { const [x, y] = [value(a, k, text), value(b, k, text)]; return sign * (x < y ? -1 : x > y ? 1 : 0); });
        body.append(...known, ...unknown);  // unknown values stay last in both orders
      });
    });
    const filter = $("filter"), failed = $("without-failed");
    const apply = () => {
      const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const row of rows) {
        const text = row.dataset.text.toLowerCase();
        row.hidden = !words.every((word) => text.includes(word)) || (failed.checked && row.dataset.failed === "1");
        shown += !row.hidden;
      }
      $("shown").textContent = shown === rows.length ? "" : `${shown} of ${rows.length}`;
    };
    filter.addEventListener("input", apply);
    failed.addEventListener("change", apply);
  }

  // candidates that share a letter cannot be told apart
  function letters() {
    const rows = [...document.querySelectorAll("#ranking tbody tr")];
    let shown = null;
    rows.forEach((row, k) => {
      const cell = row.querySelector("td.letters");
      if (!cell) return;
      cell.replaceChildren(make("button", { type: "button", class: "letters", text: cell.textContent, title: "Show what shares a letter with it", onclick: () => {
        shown = shown === k ? null : k;
        rows.forEach((other, j) => other.classList.toggle("apart", shown !== null && !data.candidates[j].ties.some((letter) => data.candidates[k].ties.includes(letter))));
      } }));
    });
  }

  // mean env-steps of a seed until a fitness, by the rule of report/speed.py
  function speed() {
    const input = $("target");
    if (!input) return;
    const { x, before, seeds } = data.speed, rows = [...document.querySelectorAll("#ranking tbody tr")];
    const title = [...document.querySelectorAll("#ranking th button")].find((button) => button.textContent === "steps to fitness");
    const until = (target, course) => {
      let steps = 0, fitness = before ?? NaN;
      for (const [k, value] of course.entries()) {
        if (value === null) continue;
        if (value >= target) return [Math.max(steps + (value > fitness ? (target - fitness) / (value - fitness) : 1) * (x[k] - steps), 1), true];
        [steps, fitness] = [x[k], value];
      }
      return [steps, false];
    };
    const write = () => {
      const target = input.valueAsNumber;
      title.textContent = `steps to ${Number.isNaN(target) ? "fitness" : round(target, 3)}`;
      rows.forEach((row, k) => {
        const cell = row.querySelector("td.until"), courses = seeds[data.candidates[k].name];
        if (!cell || !courses) return;
        const reached = courses.map((course) => until(target, course)), count = reached.filter(([, is_there]) => is_there).length;
        const mean = reached.reduce((sum, [steps]) => sum + steps, 0) / reached.length;
        cell.dataset.v = count ? mean : "";
        cell.textContent = Number.isNaN(target) ? "" : !count ? "never" : `${count < reached.length ? "> " : ""}${Math.round(mean).toLocaleString("en-US")}`;
        cell.title = `${count} of ${reached.length} seeds`;
      });
    };
    input.addEventListener("input", write);
    write();
  }

  // charts
  const axis = (label, size) => ({ label, labelSize: label ? 20 : 0, size, stroke: () => ink("var(--soft)"), grid: { stroke: () => ink("var(--line)"), width: 1 }, ticks: { stroke: () => ink("var(--edge)"), width: 1 }, font: "12px system-ui, sans-serif", labelFont: "12px system-ui, sans-serif" });
  const compact = (x) => (Math.abs(x) >= 1e6 ? `${round(x / 1e6, 3)} M` : Math.abs(x) >= 1e4 ? `${round(x / 1e3, 3)} k` : round(x, 6));
  // room for the widest tick label
  const yAxis = (label) => ({ ...axis(label), size: (u, values) => { if (!values) return 50; u.ctx.font = `${12 * devicePixelRatio}px system-ui, sans-serif`; return 16 + Math.max(24, ...values.map((v) => u.ctx.measureText(v === null ? "" : v).width / devicePixelRatio)); }, values: (u, ticks) => ticks.map((x) => (x === null ? null : compact(x))) });

  function chart(host, { x, series, xLabel, yLabel, height, xTicks, onClick, small, xHover }) {
    host.replaceChildren();
    const tip = make("div", { class: "tip", hidden: "" });
    let focused = null;
    const width = () => Math.max(200, host.clientWidth - (small ? 6 : 0));
    const bandOf = (own, k) => ({ series: [k + 1, own.band + 1], fill: () => `${ink(own.fill)}${own.ofFocus ? "33" : "22"}` });
    // the band of the line under the finger; those of all lines would hide one another
    const focus = (u, found) => {
      focused = found;
      const k = series.findIndex((own) => own.ofFocus && own.ofFocus === found);
      if (series.some((own) => own.ofFocus)) {
        u.delBand(null);
        if (k >= 0) u.addBand(bandOf(series[k], k));
        u.redraw(true, false);
      }
      u.setSeries(found, { focus: true });
    };
    const options = {
      width: width(), height, legend: { show: false }, padding: [10, 18, 0, 0],
      scales: { x: { time: false }, y: { range: (u, low, high) => { if (low === null || high === null) return [0, 1]; const gap = (high - low || Math.abs(high) || 1) * 0.06; return [low - gap, high + gap]; } } },
      axes: [{ ...axis(xLabel, small ? 30 : 34), values: (u, ticks) => ticks.map((t) => (t === null ? null : (xTicks || compact)(t))) }, yAxis(yLabel)],
      cursor: { drag: { x: !onClick, y: false }, focus: { prox: -1 }, points: { size: 6 }, y: false },
      focus: { alpha: 0.25 },
      series: [{}, ...series.map((own) => ({ label: own.label, stroke: () => ink(own.color), width: own.width || 1.6, dash: own.dash, show: own.show !== false, spanGaps: true, points: { show: own.values.filter((v) => v !== null).length === 1 } }))],
      bands: series.flatMap((own, k) => (own.band && !own.ofFocus ? [bandOf(own, k)] : [])),
      hooks: {
        setCursor: [(u) => {
          const k = u.cursor.idx;
          let found = null, best = 40;
          if (k !== null && k !== undefined && u.cursor.left >= 0) u.series.forEach((own, i) => {
            const v = i && own.show && !series[i - 1].quiet ? u.data[i][k] : null;
            const d = v === null || v === undefined ? Infinity : Math.abs(u.valToPos(v, "y") - u.cursor.top);
            if (d < best) { best = d; found = i; }
          });
          if (found !== focused) focus(u, found);
          if (found === null) { tip.hidden = true; return; }
          const value = u.data[found][k];
          tip.textContent = `${series[found - 1].label}: ${round(value)} ${xHover ? xHover(u.data[0][k]) : `at ${compact(u.data[0][k])}`}`;
          tip.hidden = false;
          const box = u.over, left = box.offsetLeft + u.cursor.left + 14, flip = left + tip.offsetWidth > host.clientWidth;
          tip.style.left = `${flip ? Math.max(0, left - tip.offsetWidth - 28) : left}px`;
          tip.style.top = `${box.offsetTop + Math.max(0, u.cursor.top - 30)}px`;
        }],
      },
    };
    const plot = new uPlot(options, [x, ...series.map((own) => own.values)], host);
    host.append(tip);
    plot.over.addEventListener("mouseleave", () => { tip.hidden = true; if (focused !== null) focus(plot, null); });
    if (onClick) plot.over.addEventListener("click", () => { if (plot.cursor.left >= 0) onClick(plot.posToVal(plot.cursor.left, "x")); });
    charts.push({ plot, width, height, host });
    return plot;
  }
  let waiting = 0;
  window.addEventListener("resize", () => { cancelAnimationFrame(waiting); waiting = requestAnimationFrame(() => charts.forEach(({ plot, width, height, host }) => { if (host.isConnected && plot.root.isConnected) plot.setSize({ width: width(), height }); })); });

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => charts.forEach(({ plot }) => plot.redraw(false, true)));

  const chips = (host, entries, toggled) => {
    host.replaceChildren(...entries.map(({ name, color, on }) => make("button", { type: "button", "aria-pressed": String(on), title: name, onclick: (event) => {
      const button = event.currentTarget, next = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", String(next));
      toggled(name, next);
    } }, make("span", { class: "dot", style: `background:${color}` }), make("span", { text: name }))));
    return { set: (names) => [...host.children].forEach((button, k) => button.setAttribute("aria-pressed", String(names.has(entries[k].name)))) };
  };

  // learning curves
  function curves() {
    const host = $("curves-chart");
    if (!host || !data.curves) return;
    const select = $("metric"), shown = new Set(data.candidates.filter((own) => own.shown).map((own) => own.name));
    let plot, places;
    const draw = () => {
      const metric = data.curves.metrics[select.value], series = [];
      places = new Map();
      for (const own of [...data.candidates].reverse()) {
        const line = metric[own.name];
        if (!line) continue;
        const on = shown.has(own.name), style = { color: own.color, show: on, dash: own.dash, width: own.wide ? 2.6 : 1.8 };
        places.set(own.name, [series.length + 1]);
        if (line.low) {
          const at = series.length;
          series.push({ label: own.name, values: line.high, color: "#0000", quiet: true, show: on, band: at + 1, fill: own.color, ofFocus: at + 3 }, { label: own.name, values: line.low, color: "#0000", quiet: true, show: on });
          places.set(own.name, [at + 1, at + 2, at + 3]);
        }
        series.push({ label: own.name, values: line.mean, ...style });
      }
      const last = select.value === "fitness" ? data.curves.final : null;
      plot = chart(host, { x: data.curves.x, series, xLabel: "environment steps of each candidate and seed", yLabel: select.value.replace("_", " "), height: 380,
        xHover: (t) => `at ${compact(t)}${t === last ? ", the final evaluation of full episodes" : ""}` });
    };
    const toggle = (name, on) => { if (on) shown.add(name); else shown.delete(name); (places.get(name) || []).forEach((k) => plot.setSeries(k, { show: on })); };
    const list = chips($("curves-chips"), data.candidates.filter((own) => own.trained).map((own) => ({ name: own.name, color: own.color, on: shown.has(own.name) })), toggle);
    const only = (names) => { shown.clear(); names.forEach((name) => shown.add(name)); list.set(shown); draw(); };
    $("curves-best").addEventListener("click", () => only(data.candidates.filter((own) => own.shown).map((own) => own.name)));
    $("curves-all").addEventListener("click", () => only(data.candidates.map((own) => own.name)));
    $("curves-none").addEventListener("click", () => only([]));
    select.addEventListener("change", draw);
    draw();
  }

  // reward components over the training: all of one candidate, or one of all candidates
  const colorOf = (k) => `var(--c${k % 8})`;
  function components() {
    const host = $("components-chart"), select = $("components-of");
    if (!host || !data.components) return;
    const of_candidate = ({ x, series }) => ({ x, lines: series.map((line, k) => ({ label: line.name, values: line.values, color: colorOf(k), show: true })) });
    const of_all = (name) => {
      const found = data.components.candidates.flatMap((own) => own.series.filter((line) => line.name === name).map((line) => ({ x: own.x, values: line.values, about: byName.get(own.name) })));
      const [x, ...values] = uPlot.join(found.map((one) => [one.x, one.values]));
      return { x, lines: found.map(({ about }, k) => ({ label: about.name, values: values[k].map((v) => v ?? null), color: about.color, dash: about.dash, show: about.shown })) };
    };
    const draw = () => {
      const key = select.value.slice(2), places = new Map();
      const { x, lines } = select.value[0] === "c" ? of_candidate(data.components.candidates[Number(key)]) : of_all(data.components.shared[Number(key)]);
      lines.forEach((line, k) => places.set(line.label, k + 1));
      const plot = chart(host, { x, series: lines, xLabel: "environment steps", yLabel: "mean per step", height: 320 });
      chips($("components-chips"), lines.map((line) => ({ name: line.label, color: line.color, on: line.show })), (name, on) => plot.setSeries(places.get(name), { show: on }));
    };
    select.addEventListener("change", draw);
    draw();
  }

  // videos, played together
  function videos() {
    const host = $("videos");
    if (!host || !data.videos) return;
    const players = [];
    let at = 0, playing = false, last = 0, rate = 1;
    for (const own of data.videos.episodes) {
      const figure = make("figure"), live = make("div", { class: "live" }), holder = make("div", { class: "chart" });
      let video = null;
      if (own.mp4) {
        const bytes = Uint8Array.from(atob(own.mp4), (c) => c.charCodeAt(0));
        video = make("video", { playsinline: "", preload: "auto", "aria-label": own.name, poster: own.poster && `data:image/jpeg;base64,${own.poster}` });
        video.muted = true;
        video.src = own.url = URL.createObjectURL(new Blob([bytes], { type: "video/mp4" }));
        own.mp4 = null;
      }
      const known = byName.get(own.name), label = make("b", { text: own.name, title: own.name });
      figure.append(video || make("div", { class: "still" }), make("figcaption", {}, make("span", {}, make("span", { class: "dot", style: `background:${known ? known.color : "var(--soft)"}` }), label), make("span", { text: own.summary })), live, holder);
      host.append(figure);
      const series = own.lines.map((line, k) => ({ label: line.name, values: line.values, color: k ? colorOf(k - 1) : "var(--ink)", width: k ? 1.2 : 2 }));
      const plot = chart(holder, { x: own.times, series, height: 150, small: true, xTicks: (t) => `${round(t, 3)} s`, onClick: (t) => seek(t), xHover: (t) => `at ${round(t, 3)} s` });
      live.replaceChildren(...own.lines.map((line, k) => make("span", {}, make("span", { class: "dot", style: `background:${series[k].color}` }), make("span", { text: `${line.name} ` }), make("span"))));
      const head = make("div", { class: "playhead" });
      plot.over.append(head);
      players.push({ video, plot, head, live, own });
    }
    const scrub = $("scrub"), clock = $("clock"), button = $("play");
    const end = data.videos.end_s;
    scrub.max = String(end);
    const show = () => {
      clock.textContent = `${at.toFixed(1)} s`;
      scrub.value = String(at);
      for (const { plot, head, live, own } of players) {
        const stop = Math.min(at, own.times[own.times.length - 1]);
        head.style.left = `${plot.valToPos(stop, "x")}px`;
        let k = 0;
        while (k + 1 < own.times.length && own.times[k + 1] <= at + 1e-9) k += 1;
        [...live.children].forEach((key, n) => { key.lastChild.textContent = round(own.lines[n].values[k], 3); });
      }
    };
    const pictureTime = (t, own) => Math.min(t, Math.max(0, own.length_s - 0.02));
    const seek = (t) => { at = Math.max(0, Math.min(end, t)); players.forEach(({ video, own }) => { if (video) video.currentTime = pictureTime(at, own); }); show(); };
    const pause = () => { playing = false; button.textContent = "▶ Play"; players.forEach(({ video }) => video && video.pause()); };
    const play = () => {
      if (at >= end - 1e-3) seek(0);
      playing = true; last = performance.now(); button.textContent = "❚❚ Pause";
      players.forEach(({ video, own }) => { if (video && at < own.length_s) { video.playbackRate = rate; video.play().catch(() => {}); } });
      requestAnimationFrame(step);
    };
    const step = (now) => {
      if (!playing) return;
      at = Math.min(end, at + ((now - last) / 1000) * rate);
      last = now;
      for (const { video, own } of players) if (video && at < own.length_s - 0.1 && Math.abs(video.currentTime - at) > 0.15) video.currentTime = at;  // keep together
      show();
      if (at >= end) { pause(); return; }
      requestAnimationFrame(step);
    };
    button.addEventListener("click", () => (playing ? pause() : play()));
    $("restart").addEventListener("click", () => { seek(0); if (!playing) play(); });
    $("speed").addEventListener("change", (event) => { rate = Number(event.target.value); players.forEach(({ video }) => { if (video) video.playbackRate = rate; }); });
    scrub.addEventListener("input", () => { pause(); seek(Number(scrub.value)); });
    show();
  }

  // links to a candidate open its details
  const open = () => { const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1))); if (target && target.tagName === "DETAILS") { target.open = true; target.scrollIntoView(); } };
  window.addEventListener("hashchange", open);
  // a search's winner is named at the right end of its plot, which is wider than a phone
  document.querySelectorAll("#search-section img").forEach((picture) => { picture.parentNode.scrollLeft = picture.parentNode.scrollWidth; });
  ranking(); letters(); speed(); curves(); components(); videos();
  comparePair({ data, $, make, chart, chips, round, colorOf });
  open();
  document.documentElement.dataset.ready = "1";
})();
