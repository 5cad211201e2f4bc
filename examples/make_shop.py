"""Writes examples/shop: the orders of a made-up shop, for docs/quickstart.md.

    python examples/make_shop.py

Each customer likes two of six shelves and buys along them: who has a teapot soon buys tea.
"""

import csv
import datetime
import pathlib
import random

SHELVES = {
    "TEA": [
        "Teapot, 1 l",
        "Earl Grey, 100 g",
        "Tea strainer",
        "Darjeeling, 100 g",
        "Two cups",
        "Honey",
        "Sencha, 50 g",
        "Tea tin",
    ],
    "COF": [
        "Hand mill",
        "Espresso beans, 500 g",
        "Filter holder",
        "Paper filters",
        "Milk jug",
        "Filter coffee, 500 g",
        "Scales",
        "Descaler",
    ],
    "BAK": [
        "Bread tin",
        "Rye flour, 1 kg",
        "Proving basket",
        "Dough scraper",
        "Wheat flour, 1 kg",
        "Oven gloves",
        "Dry yeast",
        "Bread knife",
    ],
    "GAR": [
        "Trowel",
        "Tomato seeds",
        "Potting soil, 20 l",
        "Watering can",
        "Basil seeds",
        "Plant labels",
        "Gloves",
        "Bean seeds",
    ],
    "BIK": [
        "Bicycle pump",
        "Repair kit",
        "Chain oil",
        "Front light",
        "Rear light",
        "Inner tube",
        "Lock",
        "Bell",
    ],
    "PAP": [
        "Notebook, ruled",
        "Pencils",
        "Sharpener",
        "Eraser",
        "Notebook, plain",
        "Envelopes",
        "Fountain pen",
        "Ink, blue",
    ],
}
CUSTOMERS = 150
FIRST_DAY = datetime.datetime(2025, 1, 2, 8)


def orders_of(customer, rng):
    """(time, customer, product, quantity) of one customer, oldest first."""
    liked = rng.sample(list(SHELVES), 2)
    at = FIRST_DAY + datetime.timedelta(minutes=rng.randrange(120 * 24 * 60))
    next_on_shelf = dict.fromkeys(SHELVES, 0)
    for _ in range(rng.randrange(5, 15)):
        shelf = rng.choice(liked) if rng.random() < 0.9 else rng.choice(list(SHELVES))
        place = next_on_shelf[shelf] % len(SHELVES[shelf])
        next_on_shelf[shelf] += 1 if rng.random() < 0.85 else 2
        yield at, customer, f"{shelf}-{place + 1:02}", rng.choice([1, 1, 1, 2])
        at += datetime.timedelta(minutes=rng.randrange(60, 25 * 24 * 60))


def main():
    rng = random.Random(7)
    orders = sorted(order for n in range(CUSTOMERS) for order in orders_of(f"C-{1001 + n}", rng))
    folder = pathlib.Path(__file__).parent / "shop"
    with open(folder / "orders.csv", "w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["order_no", "customer", "product", "quantity", "ordered_at"])
        for n, (at, customer, product, quantity) in enumerate(orders):
            rows.writerow([50001 + n, customer, product, quantity, f"{at:%d.%m.%Y %H:%M}"])
    with open(folder / "products.csv", "w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["product", "name"])
        for shelf, names in SHELVES.items():
            rows.writerows([f"{shelf}-{place + 1:02}", name] for place, name in enumerate(names))


main()
