"""scrapyd's runner for the project it is started in: `runner` in scrapyd.conf.

Without it scrapyd would call this project `default`, the only name in scrapy.cfg. An egg names its own
settings, so a server with eggs only does not need this.
"""

from __future__ import annotations

import os

if __name__ == "__main__":
    # Imported late: scrapyd is installed only where it runs.
    from scrapyd.runner import main

    os.environ.setdefault("SCRAPY_SETTINGS_MODULE", "crawlproj.settings")
    main()
