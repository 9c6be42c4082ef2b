"""Tables and plots of what `requests` and `log_requests` measured."""
import statistics
import textwrap
from pathlib import Path

OURS, PLAIN = 'kafka_scratch, uvloop', 'kafka_scratch, asyncio'
LIMIT, KAFKA = 'canned answers (the limit)', 'Apache Kafka'
PROGRAM, BARE = './your_program.sh', 'python3 that binds a port (the limit)'
SERVERS = (LIMIT, OURS, PLAIN, KAFKA)
SHORT = {LIMIT: 'limit', OURS: 'uvloop', PLAIN: 'asyncio', KAFKA: 'Kafka'}
# Told apart by hatch, position and label as well as by colour.
LOOKS = {LIMIT: ('#dddddd', ''), OURS: ('#0072b2', ''), PLAIN: ('#56b4e9', '//'), KAFKA: ('#e69f00', 'xx')}
TARGETS = {(50, 1): .8, (1, 64): .5}  # share of the limit to reach, by (connections, in flight)
WITHOUT_TARGET = 'no two requests alike'  # measured, but nothing was promised
START_TARGET = .25  # seconds


class Figures:
    "The cells of a run, by question, mode and server."

    def __init__(self, cells: list[dict], targets: dict = TARGETS):
        self.cells, self.targets = cells, targets
        self.questions = list(dict.fromkeys(cell['question'] for cell in cells))
        self.modes = list(dict.fromkeys((cell['connections'], cell['in_flight']) for cell in cells))
        self.servers = [server for server in SERVERS if any(cell['server'] == server for cell in cells)]

    def series(self, question: str, mode: tuple, server: str, key: str) -> list[float]:
        "One figure in every round, in order."
        return [cell[key] for cell in self.cells if cell['question'] == question and cell['server'] == server
                and (cell['connections'], cell['in_flight']) == mode and cell[key] is not None]

    def median(self, question: str, mode: tuple, server: str, key: str) -> float | None:
        found = self.series(question, mode, server, key)
        return statistics.median(found) if found else None

    def ratios(self, question: str, mode: tuple, server: str, other: str, key: str = 'rate') -> list[float]:
        "server / other within each round, sorted."
        pairs = zip(self.series(question, mode, server, key), self.series(question, mode, other, key))
        return sorted(one / two for one, two in pairs if two)

    def ratio(self, question: str, mode: tuple, server: str, other: str, key: str = 'rate') -> float | None:
        "Median of the `ratios`."
        found = self.ratios(question, mode, server, other, key)
        return statistics.median(found) if found else None


def mode_name(mode: tuple) -> str:
    "`(50, 1)` -> `50 connections × 1 in flight`."
    return f'{mode[0]} connection{"s" if mode[0] > 1 else ""} × {mode[1]} in flight'


def number(value: float | None, form: str = ',.0f', scale: float = 1) -> str:
    "A table cell; a dash where nothing was measured."
    return '–' if value is None else format(value * scale, form)


def spread(values: list[float]) -> str:
    "`0.91 (0.85–0.94)`: the median, and between which values the middle half lies."
    if len(values) < 2:
        return number(values[0] if values else None, '.2f')
    low, middle, high = statistics.quantiles(values, n=4, method='inclusive')
    return f'{middle:.2f} ({low:.2f}–{high:.2f})'


def requests_table(figures: Figures) -> list[str]:
    "The main table, as markdown lines."
    lines = [
        '| request | load | server | answer bytes | requests/s | of the limit | of Kafka | p50 µs | p99 µs | requests '
        'per CPU-second '
             '| of the limit, per CPU | server CPU | load CPU |',
             '|---|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|']
    for question in figures.questions:
        for mode in figures.modes:
            for server in figures.servers:
                at = question, mode, server
                per_cpu = 'requests_per_cpu_second'
                lines.append('| ' + ' | '.join([
                    question, mode_name(mode), server,
                    number(figures.median(*at, 'answer_bytes')), number(figures.median(*at, 'rate')),
                    number(figures.ratio(*at, LIMIT), '.2f'), number(figures.ratio(*at, KAFKA), '.1f'),
                    number(figures.median(*at, 'p50'), scale=1e6), number(figures.median(*at, 'p99'), scale=1e6),
                    number(figures.median(*at, per_cpu)), number(figures.ratio(*at, LIMIT, per_cpu), '.2f'),
                    number(figures.median(*at, 'server_cpu'), '.0%'), number(figures.median(*at, 'load_cpu'),
                        '.0%')]) + ' |')
    return lines


def start_table(starts: dict[str, list[dict]]) -> list[str]:
    "Start times, as markdown lines."
    lines = ['| started | runs | port open, median, ms | fastest | slowest | first answer, median, ms |',
             '|---|--:|--:|--:|--:|--:|']
    for name, runs in starts.items():
        opened = sorted(run['open'] for run in runs)
        answered = [run['answer'] for run in runs if 'answer' in run]
        times = [statistics.median(opened), opened[0], opened[-1], statistics.median(answered) if answered else None]
        lines.append(f'| {name} | {len(runs)} | ' + ' | '.join(number(each, ',.0f', 1e3) for each in times) + ' |')
    return lines


def targets(figures: Figures, starts: dict[str, list[dict]]) -> list[str]:
    "What was aimed at, what was measured, and whether that reaches it, as markdown lines."
    rows = []
    for question in [question for question in figures.questions if WITHOUT_TARGET not in question]:
        for mode, share in figures.targets.items():
            if ratio := figures.ratio(question, mode, OURS, LIMIT):
                rows.append((f'{question}, {mode_name(mode)}: at least {share} of the limit',
                             spread(figures.ratios(question, mode, OURS, LIMIT)) + '; per CPU-second '
                             + spread(figures.ratios(question, mode, OURS, LIMIT, 'requests_per_cpu_second')),
                             ratio >= share))
        for mode in figures.modes:
            ours, kafka = (figures.median(question, mode, server, 'p99') for server in (OURS, KAFKA))
            if ours and kafka:
                rows.append((f'{question}, {mode_name(mode)}: p99 no worse than Kafka\'s',
                             f'{ours * 1e6:,.0f} µs against {kafka * 1e6:,.0f} µs', ours <= kafka))
    if PROGRAM in starts:
        opened = statistics.median(run['open'] for run in starts[PROGRAM])
        rows.append((f'port open within {START_TARGET * 1e3:.0f} ms', f'{opened * 1e3:.0f} ms', opened <= START_TARGET))
    return ['| target | measured | |', '|---|--:|---|'] + [
        f'| {what} | {measured} | {"reached" if reached else "not reached"} |' for what, measured, reached in rows]


def plot_rates(figures: Figures, path: Path) -> None:
    "Requests per second: a row a question, a column a mode, a bar a server."
    import matplotlib
    matplotlib.use('Agg')
    import matplotlib.pyplot as plt
    rows, columns = len(figures.questions), len(figures.modes)
    figure, axes = plt.subplots(rows, columns, figsize=(4.2 * columns, 2.9 * rows), squeeze=False, layout='constrained')
    for row, question in enumerate(figures.questions):
        for column, mode in enumerate(figures.modes):
            _bars(axes[row][column], figures, question, mode)
            axes[row][column].set_title('\n'.join([*textwrap.wrap(question, 45), mode_name(mode)]), fontsize=9)
        axes[row][0].set_ylabel('requests/s')
    figure.suptitle('Requests per second (median of the rounds; below it the share of the limit)', fontsize=11)
    _save(figure, path)


def _bars(axis, figures: Figures, question: str, mode: tuple) -> None:
    "One panel, with the target as a line."
    for position, server in enumerate(figures.servers):
        rate = figures.median(question, mode, server, 'rate')
        colour, hatch = LOOKS[server]
        axis.bar(position, rate, color=colour, hatch=hatch, edgecolor='black', linewidth=.8)
        share = '' if server == LIMIT else f'\n{figures.ratio(question, mode, server, LIMIT):.2f}'
        axis.annotate(f'{rate:,.0f}{share}', (position, rate), ha='center', va='bottom', fontsize=8, zorder=3,
                      bbox=dict(facecolor='white', edgecolor='none', pad=.5))
    if mode in figures.targets and LIMIT in figures.servers and WITHOUT_TARGET not in question:
        level = figures.targets[mode] * figures.median(question, mode, LIMIT, 'rate')
        axis.axhline(level, color='black', linestyle='--', linewidth=1, zorder=2)
        axis.annotate(f'target {figures.targets[mode]}', (1, level), xycoords=('axes fraction', 'data'), ha='right',
                      va='bottom',
                      fontsize=8)
    axis.set_xticks(range(len(figures.servers)), [SHORT[server] for server in figures.servers])
    axis.margins(y=.25)
    axis.yaxis.set_major_formatter(lambda value, _: f'{value / 1000:g}k')
    axis.spines[['top', 'right']].set_visible(False)


def plot_latency(figures: Figures, path: Path) -> None:
    "Latency: a panel a mode; p50 (circle) and p99 (triangle) of each server, joined by a line, log scale."
    import matplotlib
    matplotlib.use('Agg')
    import matplotlib.pyplot as plt
    labels = [(question, server) for question in figures.questions for server in figures.servers]
    columns = len(figures.modes)
    figure, axes = plt.subplots(1, columns, figsize=(5 * columns, .35 * len(labels) + 1.6), squeeze=False,
                                layout='constrained', sharey=True)
    for axis, mode in zip(axes[0], figures.modes):
        for height, (question, server) in enumerate(labels):
            p50, p99 = (figures.median(question, mode, server, key) * 1e6 for key in ('p50', 'p99'))
            axis.plot([p50, p99], [height, height], color=LOOKS[server][0] if server != LIMIT else '#888888',
                      linewidth=2)
            axis.plot(p50, height, 'o', color='black', markersize=5)
            axis.plot(p99, height, '^', color='black', markersize=6)
        axis.set_xscale('log')
        axis.xaxis.set_major_formatter(lambda value, _: f'{value:,.0f}')
        axis.xaxis.set_minor_formatter(lambda value, _: '')
        axis.set_xlabel('µs (log scale)')
        axis.set_title(mode_name(mode), fontsize=10)
        axis.grid(axis='x', alpha=.3)
    axes[0][0].set_yticks(range(len(labels)), [f'{question}: {SHORT[server]}' for question, server in labels],
                          fontsize=8)
    axes[0][0].invert_yaxis()
    figure.suptitle('Latency from send to full answer: circle p50, triangle p99', fontsize=11)
    _save(figure, path)


def _save(figure, path: Path) -> None:
    import matplotlib.pyplot as plt
    plt.rcParams['svg.hashsalt'] = 'kafka_scratch'
    figure.savefig(path.with_suffix('.png'), dpi=120)
    figure.savefig(path.with_suffix('.svg'), metadata={'Date': None})
    plt.close(figure)


def write(run: dict, results: Path) -> str:
    "Write requests.md and the plots into `results`; return the table."
    figures = Figures(run['cells'])
    lines = ['# Requests per second, latency, start', '', run['machine'], '',
             f'{run["rounds"]} interleaved rounds of {run["seconds"]:g} s per cell; medians. Ratios are taken within '
             f'a round, '
             'then the median of the rounds (in brackets: where the middle half of them lies). CPU figures are shares '
             'of '
             'one core.', '',
             '## Targets', '', *targets(figures, run['starts']), '',
             '## Requests', '', *requests_table(figures), '',
             '![Requests per second](requests.png)', '', '![Latency](latency.png)', '',
             '## Start', '', *start_table(run['starts'])]
    plot_rates(figures, results / 'requests')
    plot_latency(figures, results / 'latency')
    text = '\n'.join(lines) + '\n'
    (results / 'requests.md').write_text(text)
    return text


def write_log_requests(run: dict, results: Path) -> str:
    "Write log_requests.md and its plots into `results`; return the table."
    figures = Figures(run['cells'], targets={})
    lines = ['# Small Produce and Fetch requests', '', run['machine'], '',
             f'{run["rounds"]} interleaved rounds of {run["seconds"]:g} s per cell; medians. Ratios are taken within '
             f'a round, '
             f'then the median of the rounds. Kafka was warmed up for {run["warm_up"]:g} s per question before. '
             f'Topics of '
             f'{run["partitions"]} partitions; what is read holds {run["filled"]:,} batches of one record in each of '
             f'them. '
             'CPU figures are shares of one core.', '',
             '## Against Kafka and the limit', '', *log_summary(figures), '',
             '## All figures', '', *requests_table(figures), '',
             '![Requests per second](log_requests.png)', '', '![Latency](log_latency.png)']
    plot_rates(figures, results / 'log_requests')
    plot_latency(figures, results / 'log_latency')
    text = '\n'.join(lines) + '\n'
    (results / 'log_requests.md').write_text(text)
    return text


def log_summary(figures: Figures) -> list[str]:
    "How this broker compares, as markdown lines: a row a question and mode."
    lines = ['| request | load | requests/s | of Kafka | of Kafka, per CPU | of the limit | p99 µs | Kafka\'s p99 µs |',
             '|---|---|--:|--:|--:|--:|--:|--:|']
    for question in figures.questions:
        for mode in figures.modes:
            at = question, mode, OURS
            lines.append('| ' + ' | '.join([
                question, mode_name(mode), number(figures.median(*at, 'rate')), spread(figures.ratios(*at, KAFKA)),
                spread(figures.ratios(*at, KAFKA, 'requests_per_cpu_second')), spread(figures.ratios(*at, LIMIT)),
                number(figures.median(*at, 'p99'), scale=1e6), number(figures.median(question, mode, KAFKA, 'p99'),
                                                                      scale=1e6)]) + ' |')
    return lines


def write_profile(run: dict, results: Path) -> str:
    "Write log_profile.md into `results`; return it."
    lines = ['# Where the time goes: small Produce and Fetch requests', '', run['machine'], '',
             f'This broker under cProfile for {run["seconds"]:g} s, 1 connection × 64 in flight. Times are per '
             f'request. cProfile '
             'makes every call slower, so the shares of small functions come out too large; without it the broker '
             'answers '
             'several times as many requests (see log_requests.md).']
    for question, found in run['profiles'].items():
        functions = found['functions']
        total = sum(row['own'] for row in functions)
        lines += ['', f'## {question}', '', f'{found["rate"]:,.0f} requests/s under the profiler.', '',
                  '| function | calls | own time, µs | of these | with what it calls, µs |', '|---|--:|--:|--:|--:|']
        lines += [f'| `{row["function"]}` | {row["calls"]:.2f} | {row["own"] * 1e6:.2f} | {row["own"] / total:.1%} | '
                  f'{row["with_callees"] * 1e6:.2f} |' for row in functions]
    text = '\n'.join(lines) + '\n'
    (results / 'log_profile.md').write_text(text)
    return text


def write_bulk(run: dict, results: Path) -> str:
    "Write bulk.md and its plot into `results`; return the table."
    cells = run['cells']
    groups = list(dict.fromkeys((cell['what'], cell['record_size'], cell['records']) for cell in cells))
    said = lambda settings: ', '.join(f'`{key}={value}`' for key, value in settings.items())
    lines = ['# Many records, with Kafka\'s own tools', '', run['machine'], '',
             f'{run["rounds"]} interleaved rounds; medians. Ratios are taken within a round, then the median of the '
             f'rounds. '
             f'Topics of {run["partitions"]} partitions. Written with `ProducerPerformance`, {said(run["producer"])} '
             f'and the defaults '
             'otherwise (idempotent, `batch.size=16384`, `linger.ms=5`, `compression.type=none`, '
             '`buffer.memory=33554432`, 5 requests in '
             f'flight); read with `ConsumerPerformance`, {said(run["consumer"])}, without the time in which it joins '
             f'its group. MB are '
             '2²⁰ bytes, as the tools print them. The tools run on the same cores as the servers. Server CPU counts '
             'all of a run, with '
             'the start of the tool.', '', *bulk_table(cells, groups), '', '![MB/s](bulk.png)']
    plot_bulk(cells, groups, results / 'bulk')
    text = '\n'.join(lines) + '\n'
    (results / 'bulk.md').write_text(text)
    return text


def bulk_series(cells: list[dict], group: tuple, server: str, key: str) -> list[float]:
    "One figure in every round, in order."
    return [cell[key] for cell in cells if (cell['what'], cell['record_size'],
                                            cell['records']) == group and cell['server'] == server
            and cell.get(key) is not None]


def bulk_table(cells: list[dict], groups: list[tuple]) -> list[str]:
    "Bulk figures, as markdown lines."
    lines = [
        '| | server | MB/s | records/s | of Kafka | of the limit | MB per server CPU-second | of Kafka, per CPU | '
        'latency, average, ms | p99, ms |',
             '|---|---|--:|--:|--:|--:|--:|--:|--:|--:|']
    for group in groups:
        for server in [server for server in SERVERS if bulk_series(cells, group, server, 'megabytes_per_second')]:
            def middle(key: str) -> float | None:
                found = bulk_series(cells, group, server, key)
                return statistics.median(found) if found else None

            def ratio(other: str, key: str = 'megabytes_per_second') -> str:
                pairs = zip(bulk_series(cells, group, server, key), bulk_series(cells, group, other, key))
                return spread(sorted(one / two for one, two in pairs if two))
            lines.append('| ' + ' | '.join([
                bulk_name(group), server, number(middle('megabytes_per_second'), '.1f'),
                number(middle('records_per_second')),
                ratio(KAFKA), ratio(LIMIT), number(middle('megabytes_per_cpu_second'), '.1f'),
                ratio(KAFKA, 'megabytes_per_cpu_second'),
                number(middle('average_ms'), '.0f'), number(middle('p99_ms'), '.0f')]) + ' |')
    return lines


def bulk_name(group: tuple) -> str:
    "`('write', 100, 4000000)` -> `write 4,000,000 × 100 B`."
    return f'{group[0]} {group[2]:,} × {group[1]} B'


def plot_bulk(cells: list[dict], groups: list[tuple], path: Path) -> None:
    "MB/s: a panel for each thing that was done, a bar a server; each round is a dot."
    import matplotlib
    matplotlib.use('Agg')
    import matplotlib.pyplot as plt
    figure, axes = plt.subplots(1, len(groups), figsize=(3.2 * len(groups), 3.4), squeeze=False, layout='constrained')
    servers = [server for server in SERVERS if any(cell['server'] == server for cell in cells)]
    for axis, group in zip(axes[0], groups):
        for position, server in enumerate(servers):
            rates = bulk_series(cells, group, server, 'megabytes_per_second')
            colour, hatch = LOOKS[server]
            middle = statistics.median(rates)
            axis.bar(position, middle, color=colour, hatch=hatch, edgecolor='black', linewidth=.8)
            axis.plot([position] * len(rates), rates, 'o', color='black', markersize=3)
            axis.annotate(f'{middle:.0f}', (position, max(rates)), ha='center', va='bottom', fontsize=8, xytext=(0, 3),
                          textcoords='offset points')
        axis.set_xticks(range(len(servers)), [SHORT[server].replace('uvloop', 'ours') for server in servers])
        axis.set_title(bulk_name(group), fontsize=9)
        axis.margins(y=.15)
        axis.spines[['top', 'right']].set_visible(False)
    axes[0][0].set_ylabel('MB/s')
    figure.suptitle('Many records with Kafka\'s own tools (median of the rounds; each round a dot)', fontsize=11)
    _save(figure, path)
