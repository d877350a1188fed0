"""Runs of 10^9 pages, simulated: how long, how much of the capacity is usable, how many URLs wait.

First the simulation is checked at 10^4 to 10^5 pages against one that follows every URL. Needs no Redis.
"""

from __future__ import annotations

from dataclasses import dataclass

from event_frontier import Run
from measuring import Goal, Options, Report, Table, read_options, say
from plots import RESULTS
from simulate_frontier import Course, Crew, Web, simulate

from crawlproj.charts import line_chart

#: The largest relative error of the simulation against the other one.
MOST_ERROR = 0.05


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    web: Web
    crew: Crew
    pages: int


CHECKS = [
    Case("domains are the limit", Web(domains=5000, seeds=500), Crew(shards=4, parsers=4), 100_000),
    Case(
        "requests in flight are the limit",
        Web(domains=20_000, seeds=1000),
        Crew(shards=2, concurrency=32, parsers=4),
        60_000,
    ),
    Case(
        "parsers are the limit",
        Web(domains=20_000, seeds=1000),
        Crew(shards=2, parsers=1, parser_page_s=0.01),
        50_000,
    ),
    Case(
        "new domains are the limit",
        Web(domains=3000, seeds=3000, median=20, sigma=0.1),
        Crew(shards=1, parsers=4),
        30_000,
    ),
    Case(
        "new domains are the limit, delay 10 s",
        Web(domains=20_000, seeds=20_000),
        Crew(shards=2, parsers=4, delay_s=10),
        50_000,
    ),
    Case(
        "Pareto, at most 500 a domain, 90 % of all pages",
        Web(domains=5000, seeds=200, shape="pareto", budget=500),
        Crew(shards=2, parsers=4),
        60_000,
    ),
    Case(
        "Pareto, no delay, the last page",
        Web(domains=500, seeds=10, shape="pareto", budget=5000),
        Crew(shards=2, parsers=4, delay_s=0, delay_factor=0),
        12_200,
    ),
]
#: The simulation was tuned on the cases above; these were chosen, and run once, after it was finished.
CHECKS += [
    Case(
        "held out: few seeds, delay 2 s",
        Web(domains=8000, seeds=80),
        Crew(shards=3, concurrency=64, parsers=4, delay_s=2),
        80_000,
    ),
    Case(
        "held out: steeper Pareto, at most 200 a domain",
        Web(domains=10_000, seeds=1000, shape="pareto", exponent=0.7, budget=200),
        Crew(shards=2, parsers=4, delay_s=0.5),
        40_000,
    ),
    Case(
        "held out: domains of one kind, few links",
        Web(domains=2000, seeds=20, median=50, sigma=1, inside=3, outside=0.5),
        Crew(shards=2, parsers=4),
        50_000,
    ),
]
#: Enough for 10^9 pages in a day, were every domain always ready.
CREW = Crew(shards=28, parsers=32)
RUNS = [
    Case("Common Crawl's domains", Web(), CREW, 10**9),
    Case("at most 1,000 a domain", Web(budget=1000), CREW, 10**9),
    Case(
        "the same, delay 60 s",
        Web(budget=1000),
        Crew(shards=28, parsers=32, delay_s=60),
        10**9,
    ),
    Case(
        "the same, CRAWL_LEASE_BATCH 4,000",
        Web(budget=1000),
        Crew(shards=28, parsers=32, delay_s=60, lease_batch=4000),
        10**9,
    ),
    Case("Pareto sizes, at most 50,000", Web(shape="pareto", budget=50_000), CREW, 10**9),
    Case("Common Crawl's, all there is", Web(), CREW, 10**10),
    Case("a million domains, Pareto", Web(domains=1_000_000, shape="pareto", largest=1e7), CREW, 10**9),
]
#: Runs that take longer are not expected to finish.
MOST_S = 60 * 86400.0


def main() -> None:
    options = read_options(__doc__)
    report = Report("")
    check(report, CHECKS[2:3] if options.quick else CHECKS)
    show_runs(report, options, RUNS[1:2] if options.quick else RUNS)
    report.finish(options)


def check(report: Report, cases: list[Case]) -> None:
    """Compare both simulations: when a half, nine tenths and all of the pages were there, and what waited."""
    table = report.table(
        "the simulation, beside one that follows every URL",
        *("run", "pages", "half of them, s", "nine tenths, s", "all, s", "waiting at most", "seen"),
    )
    for case in cases:
        exact = Run(case.web, case.crew).go(case.pages)
        flow = simulate(case.web, case.crew, case.pages)
        errors = [
            flow.time_of_s(share * case.pages) / exact.time_of_s(share * case.pages) - 1
            for share in (0.5, 0.9, 0.999)
        ]
        errors.append(flow.most_waiting / exact.most_waiting - 1)
        errors.append(flow.last.seen / exact.last.seen - 1)
        figures = [exact.time_of_s(share * case.pages) for share in (0.5, 0.9, 0.999)]
        figures += [exact.most_waiting, exact.last.seen]
        cells = (f"{figure:,.0f} ({error:+.1%})" for figure, error in zip(figures, errors, strict=True))
        table.add(case.name, f"{case.pages:,}", *cells)
        worst = max(errors, key=abs)
        report.goals.append(
            Goal(
                f"error of the simulated frontier, {case.name}",
                f"<= {MOST_ERROR:.0%}",
                f"{worst:+.1%}",
                abs(worst) <= MOST_ERROR,
            )
        )
    table.notes.append("In brackets: by how much the simulation differs.")


def show_runs(report: Report, options: Options, cases: list[Case]) -> None:
    table = report.table(
        f"runs of 10^9 pages, delay 1 s, capacity of {min(CREW.limits.values()):,.0f} pages a second",
        *("run", "M pages", "hours", "pages/s", "limited by: at 1 %, half, the end"),
        *("usable at half", "at 90 %", "at the end"),
        *("M URLs waiting, at most", "M URLs seen", "M domains"),
    )
    courses: dict[str, Course] = {}
    for case in cases:
        say(f"   {case.name}")
        courses[case.name] = simulate(case.web, case.crew, case.pages, most_s=MOST_S)
        _add(table, case, courses[case.name])
    if not options.quick:
        _draw("capacity-pages", "Pages a second, over time", "pages/s", courses, "fetched_per_s")
        _draw("capacity-waiting", "URLs waiting in Redis", "URLs", courses, "waiting")


def _add(table: Table, case: Case, course: Course) -> None:
    last, took_h = course.last, min(course.time_of_s(case.pages), course.last.at_s) / 3600
    at_1, at_50, at_90 = (
        next(moment for moment in course.moments if moment.fetched >= share * last.fetched)
        for share in (0.01, 0.5, 0.9)
    )
    table.add(
        case.name,
        f"{min(last.fetched, case.pages) / 1e6:,.0f}",
        f"{took_h:,.1f}",
        f"{last.fetched / last.at_s:,.0f}",
        f"{at_1.limit}, {at_50.limit}, {last.limit}",
        *(f"{moment.usable:.0%}" for moment in (at_50, at_90, last)),
        f"{course.most_waiting / 1e6:,.0f}",
        f"{last.seen / 1e6:,.0f}",
        f"{last.domains / 1e6:,.1f}",
    )


def _draw(file: str, title: str, y: str, courses: dict[str, Course], figure: str) -> None:
    series = {
        name: [
            (moment.at_s / 3600, getattr(moment, figure)) for moment in course.moments if moment.at_s >= 60
        ]
        for name, course in courses.items()
    }
    thinned = {name: curve[:: max(1, len(curve) // 150)] for name, curve in series.items()}
    (RESULTS / f"{file}.svg").write_text(line_chart(title, "hours", y, thinned, log_x=True))


if __name__ == "__main__":
    main()
