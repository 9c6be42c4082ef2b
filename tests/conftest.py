"How the tests run: hypothesis without a clock, in CI with the same examples every time, and with a line to paste when one fails."
import os

from hypothesis import settings

settings.register_profile('kafka_scratch', deadline=None, print_blob=True, max_examples=50, derandomize=bool(os.environ.get('CI')))
settings.load_profile('kafka_scratch')


def pytest_configure(config): config.addinivalue_line('filterwarnings', 'ignore:(read|open)_text is deprecated:DeprecationWarning')   # kafka-python's, at import
