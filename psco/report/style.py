"""The style sheet of all pages: four sizes of type, light and dark colours, narrow screens."""

STYLE = """
:root { color-scheme: light dark; --ink: #1f2328; --muted: #59636e; --paper: #fff; --panel: #f3f4f6;
  --line: #d8dce1; --blue: #2563a8; --green: #2e8b57; --red: #c9302c; --orange: #c77700;
  --c0: #2563a8; --c1: #d97b0d; --c2: #80868c; --c3: #2e8b57; --c4: #b0413e; --c5: #7a5aa6;
  --small: .875rem; --large: 1.25rem; --title: 1.75rem; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e7eb; --muted: #9aa4af; --paper: #14171b; --panel: #22272e; --line: #39414a;
    --blue: #6ca8ee; --green: #5dbb86; --red: #f0716b; --orange: #f0a64a;
    --c0: #6ca8ee; --c1: #f0a64a; --c2: #98a1aa; --c3: #5dbb86; --c4: #e58781; --c5: #b394e0; } }
* { box-sizing: border-box; }
body { font: 1rem/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
body.broad { max-width: 84rem; }
h1 { font-size: var(--title); line-height: 1.2; margin: 0 0 .5rem; }
h2 { font-size: var(--large); line-height: 1.3; margin: 2.5rem 0 .25rem; }
h3 { font-size: 1rem; margin: 1rem 0 .25rem; }
p { margin: .25rem 0 1rem; } p.note, footer, small, .legend { color: var(--muted); }
footer { font-size: var(--small); margin-top: 3rem; border-top: 1px solid var(--line);
  padding-top: .75rem; }
p.warning { border-left: 4px solid var(--red); background: var(--panel); padding: .5rem 1rem; }
svg { display: block; width: 100%; max-width: 36rem; height: auto; }
a { color: inherit; }
.scroll { overflow-x: auto; }

table { border-collapse: collapse; } td, th { vertical-align: top; }
table.numbers { font-variant-numeric: tabular-nums; margin: .5rem 0; }
table.numbers th, table.numbers td { padding: .3rem .75rem; text-align: right;
  border-bottom: 1px solid var(--line); }
table.numbers th:first-child, table.numbers td:first-child { text-align: left; padding-left: 0; }
table.numbers tr.strong { font-weight: 600; }
table.texts th, table.texts td { text-align: left; overflow-wrap: anywhere; }

table.wide { font-size: var(--small); line-height: 1.3; } div.wide { overflow-x: auto; }
table.numbers.wide th, table.numbers.wide td { padding: .3rem .4rem; white-space: pre; }
table.wide tr.group td { font-style: italic; background: var(--panel); }
table.wide small { font-size: inherit; } table.wide .about small { display: block; }
table.numbers.wide td.about { white-space: normal; min-width: 9rem; max-width: 16rem; }
table.wide .about, table.wide th:first-child { position: sticky; left: 0;
  background: var(--paper); }
ol.footnotes { color: var(--muted); font-size: var(--small); list-style: none; padding-left: 0; }
code { background: var(--panel); padding: .1em .3em; border-radius: 3px; }

table.task { margin: .25rem 0 1.5rem; } table.task td { padding: .1rem 0; }
table.task td.support { padding-right: 1rem; min-width: 3.5rem; }
table.task img { width: 44px; height: 44px; display: block; }
table.task .support img { display: inline-block; border: 2px solid var(--blue);
  border-radius: 4px; margin: 0 2px 2px 0; }
table.task .support img:not(:only-child) { width: 30px; height: 30px; }
.query { display: inline-block; margin: 0 5px 2px 0; text-align: center; vertical-align: top; }
.query small { display: block; font-size: var(--small); line-height: 1.2; }
.right, .wrong { display: inline-block; position: relative; border-radius: 4px; overflow: hidden;
  border: 3px solid var(--green); }
.wrong { border-color: var(--red); }
.right.unknown, .wrong.unknown { border-style: dashed; }
.right.unknown { border-color: var(--orange); }
.as { position: absolute; right: 0; bottom: 0; border: 1px solid var(--red); }
table.task .as img { width: 20px; height: 20px; }

table.confusion { font-size: var(--small); font-variant-numeric: tabular-nums; }
table.confusion td { min-width: 2.1rem; padding: .2rem .3rem; text-align: center;
  border: 1px solid var(--line); }
table.confusion th { font-weight: 400; text-align: left; padding: .2rem .5rem; max-width: 11rem;
  overflow: hidden; text-overflow: ellipsis; white-space: nowrap; vertical-align: middle; }
table.confusion thead th { text-align: center; }
table.confusion td.hit { outline: 2px solid var(--green); outline-offset: -2px; }

.map { position: relative; width: 100%; border: 1px solid var(--line); border-radius: 4px; }
.map img { position: absolute; width: 30px; height: 30px; margin: -15px; border-radius: 3px;
  border: 3px solid; }
.legend { display: flex; flex-wrap: wrap; gap: .25rem 1rem; font-size: var(--small);
  padding: 0; margin: .5rem 0; list-style: none; }
.legend i { display: inline-block; width: .9rem; height: .9rem; margin-right: .35rem;
  border: 3px solid; border-radius: 3px; vertical-align: -.1rem; }

.browse { display: grid; grid-template-columns: minmax(0, 1fr) 15rem; gap: 2rem; }
.browse aside { position: sticky; top: 1rem; align-self: start; max-height: calc(100vh - 2rem);
  overflow-y: auto; font-size: var(--small); }
.browse aside label { display: flex; gap: .5rem; padding: .15rem 0; cursor: pointer; }
.browse aside label span { flex: 1; overflow-wrap: anywhere; }
#number:empty { display: none; }
summary { cursor: pointer; font-weight: 600; }
.browse summary { margin-bottom: .25rem; }
.sheet { display: grid; grid-template-columns: repeat(auto-fill, minmax(7.5rem, 1fr)); gap: 1rem; }
.card { margin: 0; font-size: var(--small); line-height: 1.35; overflow: hidden;
  content-visibility: auto; contain-intrinsic-size: 7.5rem 13rem; }
.card[hidden], tr[hidden] { display: none; }
.shot { position: relative; aspect-ratio: 1; background: var(--panel); overflow: hidden;
  border: 3px solid var(--line); border-radius: 4px; margin-bottom: .25rem; }
.shot img { width: 100%; height: 100%; display: block; object-fit: cover; }
.agrees .shot { border-color: var(--green); } .differs .shot { border-color: var(--red); }
.unknown .shot { border: 3px dashed var(--orange); }
.near { position: absolute; right: 0; bottom: 0; width: 30%; height: 30%;
  border: 1px solid var(--blue); background: var(--paper); }
.bar { height: 5px; background: var(--panel); border-radius: 2px; margin: 2px 0; }
.bar i { display: block; height: 100%; background: var(--blue); border-radius: 2px; }
.unknown .bar i { background: var(--orange); }
.card small { display: block; font-size: inherit; white-space: nowrap; overflow: hidden;
  text-overflow: ellipsis; }
.card .truth { color: var(--red); }

@media (max-width: 40rem) {
  body { margin: 1rem auto; }
  .browse { grid-template-columns: minmax(0, 1fr); gap: 1rem; }
  .browse aside { position: static; order: -1; max-height: none; border: 1px solid var(--line);
    border-radius: 4px; padding: .75rem; }
  .choices { display: flex; flex-wrap: wrap; column-gap: 1rem; max-height: 8rem; overflow-y: auto; }
  .sheet { grid-template-columns: repeat(3, minmax(0, 1fr)); gap: .75rem; }
  table.stack thead { display: none; }
  table.stack, table.stack tbody, table.stack tr, table.stack td { display: block; width: 100%; }
  table.stack tr { border-bottom: 1px solid var(--line); padding: .5rem 0; }
  table.numbers.stack td { border: 0; padding: .1rem 0; display: flex; gap: 1rem;
    justify-content: space-between; }
  table.stack td::before { content: attr(data-name); color: var(--muted); font-weight: 400; }
  table.stack td:first-child { font-weight: 600; }
  table.stack td:first-child::before { content: none; }
  table.task td { display: block; } table.task tr { display: block; margin-bottom: .75rem; }
}
"""
