"""scrapyd's runner for the project it is started in: `runner` in scrapyd.conf.

Without it scrapyd would know this project as `default`, the only name in scrapy.cfg. An egg says itself
where its settings are, so a server that has only eggs needs nothing of ours.
"""

from __future__ import annotations

import os

if __name__ == "__main__":
    # Here: only where scrapyd runs is there a scrapyd to import.
    from scrapyd.runner import main

    os.environ.setdefault("SCRAPY_SETTINGS_MODULE", "crawlproj.settings")
    main()
