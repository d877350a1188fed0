"""The products of the practice shop: an ordinary Scrapy spider."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import scrapy
from scrapy.http import HtmlResponse


class ProductsSpider(scrapy.Spider):
    name = "products"
    start_urls = ("http://127.0.0.1:28421/shop/",)

    def parse(self, response: HtmlResponse) -> Iterator[Any]:
        yield from response.follow_all(css="li.product a", callback=self.parse_product)
        yield from response.follow_all(css="a[rel=next]")

    def parse_product(self, response: HtmlResponse) -> Iterator[dict[str, Any]]:
        currency, price = response.css(".price::text").get("").split()
        yield {
            "sku": response.css(".sku::text").get(),
            "name": response.css("h1::text").get(),
            "price": float(price),
            "currency": currency,
            "in_stock": response.css(".stock::text").get() == "in stock",
            "url": response.url,
        }
