"""Tables and plots of what `pipeline` measured."""
import statistics
from pathlib import Path

from benchmarks.report import _save, number

DECODE, AGGREGATE, ROWS, EXPORT, IMAGE = ('decode to Arrow, checksums checked', 'aggregate in Spark',
                                          'aggregate in Spark, whole rows shipped',
                                          'export to Parquet', 'metadata image')
DUMP, CONNECTOR, LIMIT, TAUGHT = ('kafka-dump-log', "Spark's Kafka connector",
                                  'checksums and decompression alone (the limit)',
                                  'the taught reader, plain Python')
OURS, OURS_2, IN_SPARK = 'kafka_scratch', 'kafka_scratch, two processes', 'kafka_scratch, in a warm Spark'
AGAIN = 'kafka_scratch, read again by the same process'
RIVALS = {DECODE: DUMP, AGGREGATE: CONNECTOR, ROWS: CONNECTOR, EXPORT: CONNECTOR, IMAGE: DUMP}
# What was promised: (what, who) → how many times the rival's speed; for the first data set, the plain one.
TARGETS = {(DECODE, OURS): 50, (DECODE, OURS_2): 50, (AGGREGATE, OURS): 3, (EXPORT, OURS): 5, (IMAGE, OURS): 40,
           (IMAGE, AGAIN): 40,
           (IMAGE, IN_SPARK): 5}
LOOKS = {OURS: ('#0072b2', ''), OURS_2: ('#0072b2', '//'), IN_SPARK: ('#56b4e9', ''), AGAIN: ('#56b4e9', '//'),
         DUMP: ('#e69f00', 'xx'), CONNECTOR: ('#e69f00', 'xx'),
         LIMIT: ('#dddddd', ''), TAUGHT: ('#cc79a7', '..')}


class Figures:
    "The cells of a run, by question, data and reader."

    def __init__(self, cells: list[dict]):
        self.cells = cells

    def names(self, key: str, **where) -> list:
        return list(dict.fromkeys(cell[key] for cell in self.cells if all(cell[k] == v for k, v in where.items())))

    def series(self, what: str, data: str, reader: str, key: str = 'seconds') -> list[float]:
        return [cell[key] for cell in self.cells if (cell['what'], cell['data'], cell['reader']) == (what, data,
            reader) and key in cell]

    def median(self, *at, key: str = 'seconds') -> float | None:
        found = self.series(*at, key)
        return statistics.median(found) if found else None

    def times_faster(self, what: str, data: str, reader: str) -> list[float]:
        "Rival's time / reader's time within each round, sorted."
        return sorted(theirs / ours for theirs, ours in zip(self.series(what, data, RIVALS[what]),
                                                            self.series(what, data, reader)))


def of(values: list[float]) -> str:
    "`57 (51–60)`: the median, and the extremes."
    if not values:
        return '–'
    form = '.1f' if statistics.median(values) < 20 else '.0f'
    return (f'{statistics.median(values):{form}} ({values[0]:{form}}–{values[-1]:{form}})'
            if len(values) > 1 else f'{values[0]:{form}}')


def main_table(figures: Figures, what: str) -> list[str]:
    "One question, as markdown lines."
    lines = ['| data | reader | seconds | records/s | MB/s of log | CPU seconds | times faster |',
             '|---|---|--:|--:|--:|--:|--:|']
    for data in figures.names('data', what=what):
        for reader in figures.names('reader', what=what, data=data):
            seconds, records, size = (figures.median(what, data, reader, key=key) for key in ('seconds',
                'records_in_data', 'bytes_in_data'))
            star = ' *' if figures.median(what, data, reader, key='scaled') else ''
            cpu = figures.median(what, data, reader, key='cpu')
            lines.append(
                f'| {data} | {reader}{star} | {seconds:.3f} | {number(records / seconds)} | {number(size / seconds / 1e6)} '  # noqa: E501
                         f'| {number(cpu, ".2f")} | {of(figures.times_faster(what, data, reader))} |')
    return lines


def target_table(figures: Figures) -> list[str]:
    "What was promised, and what was measured."
    lines = ['| promised | measured | |', '|---|--:|---|']
    for (what, reader), least in TARGETS.items():
        for data in figures.names('data', what=what):
            found = figures.times_faster(what, data, reader)
            if found:
                lines.append(f'| {what}, {data}, {reader}: at least {least} × {RIVALS[what]} | {of(found)} × '
                             f'| {"reached" if statistics.median(found) >= least else "not reached"} |')
    return lines


def growth_table(figures: Figures) -> list[str]:
    lines = ['| records | log, GB | ' + ' | '.join(f'{reader}, s' for reader in figures.names('reader',
        what='growth')) + ' |']
    readers = figures.names('reader', what='growth')
    lines.append('|--:|--:|' + '--:|' * len(readers))
    for data in figures.names('data', what='growth'):
        size = figures.median('growth', data, readers[0], key='bytes_in_data')
        lines.append(f'| {data} | {size / 1e9:.2f} | ' + ' | '.join(number(figures.median('growth', data, reader),
            '.2f') for reader in readers) + ' |')
    return lines


def plot(figures: Figures, path: Path) -> None:
    "Left: times faster than the rival, log scale, a bar a data set. Right: how cost grows."
    import matplotlib
    matplotlib.use('Agg')
    import matplotlib.pyplot as plt
    bars = [(what, reader, data) for what, reader in TARGETS for data in figures.names('data',
        what=what) if figures.series(what, data, reader)]
    figure, (left, right) = plt.subplots(1, 2, figsize=(13, .28 * len(bars) + 2.2), layout='constrained',
                                         width_ratios=[3, 2])
    for height, (what, reader, data) in enumerate(bars):
        found, (colour, hatch) = figures.times_faster(what, data, reader), LOOKS[reader]
        middle = statistics.median(found)
        left.barh(height, middle, color=colour, hatch=hatch, edgecolor='black', linewidth=.7)
        left.plot([TARGETS[what, reader]] * 2, [height - .45, height + .45], color='black', linewidth=2)
        left.annotate(f' {middle:.3g} ×', (middle, height), va='center', fontsize=8)
    short = {OURS: '', OURS_2: ', two processes', AGAIN: ', read again', IN_SPARK: ', in Spark'}
    left.set_yticks(range(len(bars)),
                    [f'{what.split(",")[0]}{"" if what == IMAGE else f": {data}"}{short[reader]}' for what, reader,
                     data in bars],
                    fontsize=8)
    left.invert_yaxis()
    left.set(xscale='log', xlim=(1, 150))
    left.set_xticks([1, 2, 5, 10, 20, 50, 100], ['1', '2', '5', '10', '20', '50', '100'])
    left.minorticks_off()
    left.set_xlabel("times faster than kafka-dump-log or Spark's Kafka connector (thick line: promised)")
    _growth_plot(right, figures)
    for axis in (left, right):
        axis.spines[['top', 'right']].set_visible(False)
    _save(figure, path)


def _growth_plot(axis, figures: Figures) -> None:
    for marker, reader in zip('o^sD', figures.names('reader', what='growth')):
        points = [(figures.median('growth', data, reader, key='records_in_data'),
                   figures.median('growth', data, reader))
                  for data in figures.names('data', what='growth')]
        axis.plot(*zip(*points), marker=marker, label='decode to Arrow, two processes' if reader == OURS_2 else reader)
    axis.set(xscale='log', yscale='log', xlabel='records of 100 bytes', ylabel='seconds', title='How cost grows')
    axis.grid(alpha=.3)
    if axis.lines:
        axis.legend(fontsize=8)


def write(run: dict, results: Path) -> str:
    "Write pipeline.md and the plot into `results`; return the text."
    figures = Figures(run['cells'])
    versions = ', '.join(f'{name} {version}' for name, version in run['versions'].items())
    lines = ['# Log directories to tables', '', run['machine'], f'With {versions}.', '',
             f'Medians of {run["rounds"]} interleaved rounds; ratios are taken within a round (in brackets the '
             f'extremes). Records of 100 random '
             'letters over 4 partitions, written by Kafka\'s own producer into a real Kafka; everybody reads the same '
             'records, and the aggregates '
             'must be equal. kafka-dump-log\'s time includes the start of its Java (about a second); ours starts when '
             'the compiled code is '
             'loaded (a process that reads for the first time also waits until the system has given it its memory). '
             'Spark is one session for all (2 cores, 4 GB), warm; the connector reads from the running Kafka. '
             '"Aggregate": '
             'records, bytes of values, first and last time by partition; our source is asked for the columns it '
             'takes (with `value_size` in '
             'place of the values), and "whole rows shipped" for all of them. The query on the image asks for the '
             'three columns it adds up. A star: the first 100,000 records were read, the time is scaled. '
             'A part that was measured again by itself (`--only`) stands in the place of the earlier one.', '',
             '## Promised and measured', '', *target_table(figures)]
    for what in (DECODE, AGGREGATE, ROWS, EXPORT, IMAGE):
        if figures.names('data', what=what):
            lines += ['', f'## {what[0].upper()}{what[1:]}', '', *main_table(figures, what)]
    if figures.names('data', what='growth'):
        lines += ['', '## How cost grows', '', *growth_table(figures)]
    text = '\n'.join([*lines, '', '![Times faster, and how cost grows](pipeline.png)', ''])
    (results / 'pipeline.md').write_text(text)
    plot(figures, results / 'pipeline')
    return text
