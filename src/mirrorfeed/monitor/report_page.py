"""One page over a ledger, whole in one file: no scripts, nothing from elsewhere."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from mirrorfeed.display.humanize import counted
from mirrorfeed.display.printable import escape_html
from mirrorfeed.display.svg_charts import Point, bars, lines, number, what
from mirrorfeed.monitor import report_figures as archive
from mirrorfeed.publish.ledger import COMPARED, DIFFERENT, PUBLISHED, STANDS, STOPPED, WRONG, Row
from mirrorfeed.report import freshness, in_time

_LAG_DAYS, _DAYS, _ARCHIVE_DAYS = 14, 30, 90
_FAILURES = 50
_DAY = "day, UTC"
MARKERS = ("inserts", "updates", "upserts", "deletes")
PHASES = ("stage", "record", "rename")


def page(rows: Sequence[Row], now: datetime) -> str:
    """The page about these rows, as of now."""
    published = [row for row in rows if row.outcome == PUBLISHED]
    recent = _since(published, now - timedelta(days=_DAYS))
    body = [
        "<header><h1>mirrorfeed</h1>",
        f"<p>Publications as of {moment(now)} UTC, from {counted(len(rows), 'row')} of the ledger</p></header>",
        _tiles(rows, now),
        '<div class="charts">',
        _card("Lag: from a commit to its publication", lag_chart(_since(published, now - timedelta(days=_LAG_DAYS)))),
        _card("Rows a day, by what they do", marker_chart(recent)),
        _card("MiB a day", bars(by_day(recent, ["files"], lambda row, _: row.bytes / 2**20), ["files"], "MiB", _DAY)),
        _card("Seconds a day, by phase", phase_chart(recent)),
        *(_card(*each) for each in archive.charts(_since(rows, now - timedelta(days=_ARCHIVE_DAYS)))),
        "</div>",
        _card("How far is each table, and is its mirror equal?", _standings(rows, now)),
        *_fresh(rows, now),
        *_in_time(rows, now),
        *_fleet(rows),
        _card("What went wrong", _failures(rows)),
    ]
    return whole("".join(body))


def whole(body: str) -> str:
    """A page with this content, such as charts, in the colours that they need."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>mirrorfeed</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{STYLE}</style></head><body>{body}</body></html>\n"
    )


def framed(drawn: str) -> str:
    """The same for a page of another's, which keeps its own colours."""
    return f'<div class="mirrorfeed-drawn"><style>{FRAME}</style>{drawn}</div>'


def titled(title: str, drawn: str) -> str:
    return f"<h4>{escape_html(title)}</h4>{drawn}"


def lag_chart(rows: Iterable[Row]) -> str:
    """A line a table: how old the oldest change of each publication was."""
    series: dict[str, list[Point]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: row.time):
        if row.outcome == PUBLISHED and row.lag_seconds is not None:
            series[row.table].append(Point(row.time, row.lag_seconds / 60))
    return lines(series, "min")


def marker_chart(rows: Iterable[Row]) -> str:
    return bars(by_day(rows, MARKERS, lambda row, marker: getattr(row, marker)), MARKERS, "rows", _DAY)


def phase_chart(rows: Iterable[Row]) -> str:
    return bars(by_day(rows, PHASES, lambda row, phase: getattr(row, f"{phase}_seconds") or 0), PHASES, "s", _DAY)


def by_day(
    rows: Iterable[Row], kinds: Sequence[str], value: Callable[[Row, str], float]
) -> list[tuple[str, dict[str, float]]]:
    """The sums for each kind of every day from the first row's to the last one's."""
    found: dict[date, dict[str, float]] = defaultdict(lambda: dict.fromkeys(kinds, 0.0))
    for row in rows:
        for kind in kinds:
            found[row.time.astimezone(UTC).date()][kind] += value(row, kind)
    if not found:
        return []
    first = min(found)
    days = [first + timedelta(days=n) for n in range((max(found) - first).days + 1)]
    return [(f"{day:%b} {day.day}", found.get(day, {})) for day in days]


def days(rows: Iterable[Row], now: datetime) -> list[dict[str, Any]]:
    """What was published each day of those that are drawn, the newest first: sums, and the longest lag, under the
    names of the columns."""
    found: dict[date, list[Row]] = defaultdict(list)
    for row in _since(rows, now - timedelta(days=_DAYS)):
        if row.outcome == PUBLISHED:
            found[row.time.astimezone(UTC).date()].append(row)
    names = (*MARKERS, "bytes", *(f"{phase}_seconds" for phase in PHASES))
    return [
        {
            "day": day,
            **{name: sum(getattr(row, name) or 0 for row in found[day]) for name in names},
            "lag_seconds": max((row.lag_seconds for row in found[day] if row.lag_seconds is not None), default=None),
        }
        for day in sorted(found, reverse=True)
    ]


def latest(rows: Iterable[Row], outcomes: Collection[str]) -> dict[str, Row]:
    """The newest row of these outcomes of each table, by its name."""
    return {row.table: row for row in sorted(rows, key=lambda row: row.time) if row.outcome in outcomes}


def _since(rows: Iterable[Row], start: datetime) -> list[Row]:
    return [row for row in rows if row.time >= start]


def _rows_in(row: Row) -> int:
    return row.inserts + row.updates + row.upserts + row.deletes


def figures(rows: Sequence[Row], now: datetime) -> dict[str, float]:
    """What all tables come to, by its name."""
    stand, compared = latest(rows, STANDS), latest(rows, COMPARED)
    day = [row for row in _since(rows, now - timedelta(days=1)) if row.outcome == PUBLISHED]
    return {
        "tables": len(stand | compared),
        "stopped": sum(row.outcome in STOPPED for row in stand.values()),
        "different": sum(row.outcome == DIFFERENT for row in compared.values()),
        "publications in a day": len(day),
        "rows in a day": sum(map(_rows_in, day)),
        "MiB in a day": round(sum(row.bytes for row in day) / 2**20, 1),
        "calls repeated in a day": sum(row.retries for row in day),
    }


def _tiles(rows: Sequence[Row], now: datetime) -> str:
    shown = "".join(
        f'<div class="tile {"bad" if value and name in ("stopped", "different") else ""}">'
        f"<b>{number(value)}</b>{what(name, value)}</div>"
        for name, value in figures(rows, now).items()
    )
    return f'<div class="tiles">{shown}</div>'


def _fleet(rows: Sequence[Row]) -> list[str]:
    """Nothing where no table has an archive."""
    numbers, held = range(1, len(archive.HELD)), archive.held(rows)
    listed = _table(_head(archive.HELD, numbers), [_line(cells, numbers) for cells in held])
    return [_card("What is hot, and what is in the archive?", listed)] if held else []


def _fresh(rows: Sequence[Row], now: datetime) -> list[str]:
    """Nothing where nobody watched in the last day."""
    found = [_line(freshness.cells(row, now), (), freshness.waiting(row)) for row in freshness.newest(rows)]
    return [_card("How far has come what was committed?", _table(_head(freshness.FRESH, ()), found))] if found else []


def _in_time(rows: Sequence[Row], now: datetime) -> list[str]:
    """Nothing where no table says in which time it is to be fresh."""
    found = in_time.in_time(rows, now)
    lines_ = []
    for table, week in found.items():
        late = in_time.late(week)
        lines_.append(_line(in_time.cells(table, week), [at for at in in_time.NUMBERS if at not in late], late))
    return (
        [_card("Was it published in time?", _table(_head(in_time.head(now), in_time.NUMBERS), lines_))] if found else []
    )


@dataclass(frozen=True, slots=True)
class Standing:
    """The newest rows of a table, of each kind that says where it stands."""

    table: str
    row: Row | None
    """Whether it is published, or what stopped it."""
    published: Row | None
    compared: Row | None

    @property
    def stopped(self) -> bool:
        return self.row is not None and self.row.outcome in STOPPED

    @property
    def different(self) -> bool:
        return self.compared is not None and self.compared.outcome == DIFFERENT

    def cells(self, now: datetime) -> tuple[str, ...]:
        """In words, under `STANDING`."""
        row, last, compared = self.row, self.published, self.compared
        state = "-" if row is None else f"stopped: {row.error}" if self.stopped else "published"
        equal = "different" if self.different else "equal"
        mirror = "-" if compared is None else f"{equal} at version {_count(compared.to_version)}"
        version, behind = last.to_version if last else None, row.lag_versions if row else None
        when = _when(last, now), _when(compared, now)
        return self.table, state, _count(version), _count(behind), when[0], mirror, when[1]


STANDING = (
    *("Table", "State", "Version published", "Versions not published", "Last published"),
    *("Mirror", "Last compared"),
)
_NUMBERS = (2, 3)


def standings(rows: Sequence[Row]) -> list[Standing]:
    """By the tables' names."""
    stand, compared, published = latest(rows, STANDS), latest(rows, COMPARED), latest(rows, [PUBLISHED])
    return [Standing(t, stand.get(t), published.get(t), compared.get(t)) for t in sorted(stand | compared)]


def _standings(rows: Sequence[Row], now: datetime) -> str:
    lines_ = [
        _line(each.cells(now), _NUMBERS, [at for at, bad in ((1, each.stopped), (5, each.different)) if bad])
        for each in standings(rows)
    ]
    return _table(_head(STANDING, _NUMBERS), lines_)


def _head(names: Iterable[str], numbers: Collection[int]) -> str:
    return "".join(f"<th{_kind('n', at in numbers)}>{name}" for at, name in enumerate(names))


def _line(cells: Iterable[str], numbers: Collection[int], bad: Collection[int] = ()) -> str:
    told = (
        f"<td{_kind('n', at in numbers) or _kind('bad', at in bad)}>{escape_html(cell)}</td>"
        for at, cell in enumerate(cells)
    )
    return f"<tr>{''.join(told)}</tr>"


def _kind(name: str, it_is: bool) -> str:
    return f" class={name}" if it_is else ""


def _when(row: Row | None, now: datetime) -> str:
    return "never" if row is None else f"{moment(row.time)} ({_ago(now - row.time)} ago)"


def _count(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def failures(rows: Sequence[Row]) -> list[Row]:
    """What went wrong, the newest first."""
    return sorted((row for row in rows if row.outcome in WRONG), key=lambda row: row.time, reverse=True)


def _failures(rows: Sequence[Row]) -> str:
    failed = failures(rows)
    lines_ = [
        f"<tr><td class=t>{moment(row.time)}</td><td>{escape_html(row.table)}</td>"
        f"<td>{escape_html(row.error or row.outcome)}</td><td>{escape_html(row.message or '')}</td></tr>"
        for row in failed[:_FAILURES]
    ]
    shown = _table("<th>Time (UTC)<th>Table<th>Error<th>What happened, and what to do", lines_)
    left = len(failed) - _FAILURES
    return shown + (f'<p class="nothing">{left:,} older ones are not shown.</p>' if left > 0 else "")


def _table(head: str, lines_: Sequence[str]) -> str:
    if not lines_:
        return '<p class="nothing">Nothing.</p>'
    return f'<div class="scroll"><table><tr>{head}</tr>{"".join(lines_)}</table></div>'


def _card(title: str, content: str) -> str:
    return f"<section><h2>{escape_html(title)}</h2>{content}</section>"


def moment(time: datetime) -> str:
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M}"


def _ago(since: timedelta) -> str:
    minutes = int(since.total_seconds() // 60)
    if minutes < 120:
        return f"{minutes} min"
    return f"{minutes // 60} h" if minutes < 2880 else f"{minutes // 1440} d"


STYLE = """
:root{color-scheme:light dark;--bg:#f6f7f9;--card:#fff;--ink:#1b2330;--soft:#667085;--line:#e3e7ee;--bad:#c22d2d;
--c0:#2563c9;--c1:#e08a1e;--c2:#1d9a73;--c3:#c2408f;--c4:#7a5bd6;--c5:#5aa3d8;--c6:#a8871a;--c7:#8a5a44;--rest:#a7afbd}
@media(prefers-color-scheme:dark){:root{--bg:#12161d;--card:#1b212b;--ink:#e6eaf1;--soft:#98a2b3;--line:#2d3643;
--bad:#ff7b72;--c0:#6ea3ff;--c1:#f0a848;--c2:#4cc79d;--c3:#e884c0;--c4:#a893f2;--c5:#8cc8f0;--c6:#d2b04a;--c7:#c7947a;
--rest:#667085}}
*{box-sizing:border-box}
body{margin:0 auto;padding:24px;max-width:1400px;background:var(--bg);color:var(--ink);
font:14px/1.45 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
h1{margin:0;font-size:22px}h2{margin:0 0 10px;font-size:14px;font-weight:600}
header p{margin:2px 0 18px;color:var(--soft)}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:14px;margin-bottom:14px}
.tile,section{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:14px 16px}
.tile{color:var(--soft)}.tile b{display:block;font-size:26px;font-weight:600;color:var(--ink);line-height:1.2}
.tile.bad b,td.bad{color:var(--bad)}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,520px),1fr));gap:14px;margin-bottom:14px}
section+section{margin-top:14px}.charts section{margin-top:0}
svg{display:block;width:100%;height:auto}
svg text{font-size:11px;fill:var(--soft)}
.grid{stroke:var(--line)}.axis{stroke:var(--soft)}
.line{fill:none;stroke:currentColor;stroke-width:1.6;stroke-linejoin:round}.dot,.bar{fill:currentColor}
.dense{opacity:0}.dense:hover{opacity:1}
.key{display:inline-block;width:10px;height:10px;border-radius:3px;margin-right:6px;background:currentColor}
.c0{color:var(--c0)}.c1{color:var(--c1)}.c2{color:var(--c2)}.c3{color:var(--c3)}.c4{color:var(--c4)}
.c5{color:var(--c5)}.c6{color:var(--c6)}.c7{color:var(--c7)}.rest{color:var(--rest)}
.legend{display:flex;flex-wrap:wrap;gap:4px 16px;margin:8px 0 0;font-size:12px;color:var(--soft)}
.nothing{margin:0;color:var(--soft)}
.scroll{overflow-x:auto}table{width:100%;border-collapse:collapse}
th{text-align:left;font-weight:600;color:var(--soft);font-size:12px}
th,td{padding:6px 14px 6px 0;border-bottom:1px solid var(--line);vertical-align:top}
tr:last-child td{border-bottom:0}.n{text-align:right;font-variant-numeric:tabular-nums}
th.n,td.n{padding-right:28px}.t{white-space:nowrap}
"""

FRAME = """
.mirrorfeed-drawn{--soft:#7d8796;--line:#7d879644;--c0:#2f6fd6;--c1:#e08a1e;--c2:#1d9a73;--c3:#c2408f;--c4:#7a5bd6;
--c5:#5aa3d8;--c6:#a8871a;--c7:#8a5a44;--rest:#a7afbd;max-width:760px;font:13px/1.45 system-ui,-apple-system,"Segoe UI",
Roboto,"DejaVu Sans",sans-serif}
.mirrorfeed-drawn h4{margin:12px 0 6px;font-size:14px;font-weight:600}
""" + "".join(
    f".mirrorfeed-drawn {rule}\n"
    for rule in (
        "svg{display:block;width:100%;height:auto}",
        "svg text{font-size:11px;fill:var(--soft)}",
        ".grid{stroke:var(--line)}",
        ".axis{stroke:var(--soft)}",
        ".line{fill:none;stroke:currentColor;stroke-width:1.6;stroke-linejoin:round}",
        ".dot,.mirrorfeed-drawn .bar{fill:currentColor}",
        ".dense{opacity:0}",
        ".key{display:inline-block;width:10px;height:10px;border-radius:3px;margin-right:6px;background:currentColor}",
        *(f".c{n}{{color:var(--c{n})}}" for n in range(8)),
        ".rest{color:var(--rest)}",
        ".legend{display:flex;flex-wrap:wrap;gap:4px 16px;margin:8px 0 0;font-size:12px;color:var(--soft)}",
        ".nothing{margin:0;color:var(--soft)}",
    )
)
"""For charts in a page of another's: in colours that are seen on light and on dark."""
