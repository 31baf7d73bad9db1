"""Columns of a Parquet file: their types as pipeline files write them, types that are inferred, and values of events as columns.

A value either fits the type of its column or is refused with a reason; none is changed to make it fit, except that whole numbers become numbers
and that a fraction of a time that its unit does not have is cut off.
"""
from __future__ import annotations

import base64
import datetime
import decimal
import json
import re
from itertools import chain
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple

import pyarrow as pa

DEPTH_MOST = 16      # of lists and objects; deeper values are refused, or JSON texts where the type is inferred
COLUMNS_MOST = 500   # of an inferred schema, with the members of objects
_UNITS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_NULL = type(None)


class Unfit(Exception):
    """A value that does not fit: the reason, with the path of the value within the event."""


class WrongType(Exception):
    """The text of a type that cannot be read."""


def shown(value: Any) -> str:
    """A value in a message."""
    text = json.dumps(value, ensure_ascii=False)
    return text.encode(errors="replace").decode() if len(text) <= 60 else text[:57].encode(errors="replace").decode() + "..."


def _inside(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


# ---- Types ----


class Column:
    """The type of a column. `fast` converts values that all fit, or raises anything; `clean` returns what pyarrow takes for one value that fits,
    and raises Unfit for all others."""

    kinds: Tuple[type, ...] = ()
    wanted = ""

    def __init__(self, arrow: Any) -> None:
        self.arrow, self.is_required = arrow, False

    def field(self, name: str) -> Any:
        return pa.field(name, self.arrow, nullable=not self.is_required)

    def check(self, values: List[Any]) -> None:
        """Raises TypeError if a value is of another kind. `type` of a boolean is not `int`."""
        kinds = set(map(type, values))
        if self.is_required and _NULL in kinds or not kinds <= {*self.kinds, _NULL}:
            raise TypeError

    def fast(self, values: List[Any]) -> Any:
        self.check(values)
        return pa.array(values, self.arrow)

    def clean_one(self, value: Any, path: str) -> Any:
        if self.is_required and value is None:
            raise Unfit(f"'{path}' is missing or null")
        return None if value is None else self.clean(value, path)

    def clean(self, value: Any, path: str) -> Any:
        if type(value) not in self.kinds:
            raise self.unfit(value, path)
        return value

    def unfit(self, value: Any, path: str) -> Unfit:
        return Unfit(f"'{path}' is {shown(value)}, and must be {self.wanted}")


class Boolean(Column):
    kinds, wanted = (bool,), "true or false"


class Whole(Column):
    kinds = (int,)

    def __init__(self, arrow: Any, bits: int, is_signed: bool) -> None:
        super().__init__(arrow)
        self.least, self.most = (-2**(bits - 1), 2**(bits - 1) - 1) if is_signed else (0, 2**bits - 1)
        self.wanted = f"a whole number from {self.least} to {self.most}"

    def clean(self, value: Any, path: str) -> int:
        if type(value) is float and value.is_integer():
            value = int(value)
        if type(value) is not int or not self.least <= value <= self.most:
            raise self.unfit(value, path)
        return value


class Number(Column):
    kinds, wanted = (int, float), "a number"

    def __init__(self, arrow: Any, most: float) -> None:
        super().__init__(arrow)
        self.most = most

    def fast(self, values: List[Any]) -> Any:
        self.check(values)
        if self.most < 1e300:
            raise TypeError  # whose range pyarrow does not check
        return pa.array(values, self.arrow)

    def clean(self, value: Any, path: str) -> float:
        if type(value) in self.kinds:
            try:
                number = float(value)
            except OverflowError:
                number = float("inf")
            if number != number or -self.most <= number <= self.most:
                return number
        raise self.unfit(value, path)


class Text(Column):
    kinds, wanted = (str,), "a text"

    def clean(self, value: Any, path: str) -> str:
        try:
            if type(value) is str:
                value.encode()
                return value
        except UnicodeEncodeError:
            pass
        raise self.unfit(value, path)


class Document(Column):
    """Any value, as its JSON."""

    def fast(self, values: List[Any]) -> Any:
        raise TypeError

    def clean(self, value: Any, path: str) -> str:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        return text.encode(errors="replace").decode()


class Binary(Column):
    wanted = "bytes, as the text of their base64"

    def fast(self, values: List[Any]) -> Any:
        if self.is_required and None in values:
            raise TypeError
        return pa.array([None if value is None else base64.b64decode(value, validate=True) for value in values], self.arrow)

    def clean(self, value: Any, path: str) -> bytes:
        try:
            if type(value) is str:
                return base64.b64decode(value, validate=True)
        except ValueError:
            pass
        raise self.unfit(value, path)


class Instant(Column):
    kinds, wanted = (str,), "a time such as \"2026-03-01T10:00:00Z\""

    def __init__(self, unit: str) -> None:
        super().__init__(pa.timestamp(unit, tz="UTC"))
        self.unit = unit

    def fast(self, values: List[Any]) -> Any:
        self.check(values)
        return pa.array(values, pa.string()).cast(pa.timestamp("ns", tz="UTC")).cast(self.arrow, safe=False)

    def clean(self, value: Any, path: str) -> int:
        try:
            if type(value) is str:
                nanoseconds: int = pa.scalar(value).cast(pa.timestamp("ns", tz="UTC")).value
                return _quotient(nanoseconds, _UNITS[self.unit])
        except (pa.ArrowException, ValueError):
            pass
        raise self.unfit(value, path)


def _quotient(number: int, by: int) -> int:
    """Division that cuts towards zero, as the cast in `fast` does."""
    return number // by if number >= 0 else -(-number // by)


class Span(Column):
    kinds, wanted = (str,), "a duration such as \"1.5s\""
    form = re.compile(r"(-?)(\d{1,10})(?:\.(\d{1,9}))?s", re.ASCII)

    def fast(self, values: List[Any]) -> Any:
        raise TypeError

    def clean(self, value: Any, path: str) -> int:
        match = self.form.fullmatch(value) if type(value) is str else None
        if match is not None:
            nanoseconds = int(match[2]) * 10**9 + int((match[3] or "0").ljust(9, "0"))
            if nanoseconds < 2**63:
                return -nanoseconds if match[1] else nanoseconds
        raise self.unfit(value, path)


class Day(Column):
    wanted = "a day such as \"2026-03-01\""

    def fast(self, values: List[Any]) -> Any:
        raise TypeError

    def clean(self, value: Any, path: str) -> datetime.date:
        try:
            if type(value) is str and re.fullmatch(r"\d{4}-\d\d-\d\d", value, re.ASCII):
                return datetime.date.fromisoformat(value)
        except ValueError:
            pass
        raise self.unfit(value, path)


class Decimal(Column):
    def __init__(self, digits: int, scale: int) -> None:
        super().__init__(pa.decimal128(digits, scale))
        self.digits, self.scale = digits, scale
        self.wanted = f"a number of at most {digits} digits, {scale} of them behind the point"

    def fast(self, values: List[Any]) -> Any:
        raise TypeError

    def clean(self, value: Any, path: str) -> decimal.Decimal:
        try:
            if type(value) in (int, float, str) and len(str(value)) <= 100:
                with decimal.localcontext(decimal.Context(prec=100, traps=[decimal.InvalidOperation, decimal.Inexact])):
                    number = decimal.Decimal(str(value)).quantize(decimal.Decimal(1).scaleb(-self.scale))
                if number.is_finite() and abs(number) < decimal.Decimal(10) ** (self.digits - self.scale):
                    return number
        except decimal.DecimalException:
            pass
        raise self.unfit(value, path)


class Sequence(Column):
    kinds, wanted = (list,), "a list"

    def __init__(self, of: Column) -> None:
        super().__init__(pa.list_(of.field("element")))
        self.of = of

    def fast(self, values: List[Any]) -> Any:
        self.check(values)
        end, ends = 0, []
        for value in values:
            # An offset that is null makes its list null.
            ends.append(None if value is None else end)
            end += 0 if value is None else len(value)
        elements = self.of.fast(list(chain.from_iterable(value for value in values if value is not None)))
        return pa.ListArray.from_arrays(pa.array([*ends, end], pa.int32()), elements, type=self.arrow)

    def clean(self, value: Any, path: str) -> List[Any]:
        if type(value) is not list:
            raise self.unfit(value, path)
        return [self.of.clean_one(element, f"{path}[{index}]") for index, element in enumerate(value)]


class Structure(Column):
    """Also the event itself, whose `arrow` has the fields of the schema. `drops`: whether other members are left out, or make a value unfit."""

    kinds, wanted = (dict,), "an object"

    def __init__(self, members: Dict[str, Column], drops: bool) -> None:
        super().__init__(pa.struct([column.field(name) for name, column in members.items()]))
        self.members, self.drops = members, drops

    def fast_members(self, values: List[Any]) -> List[Any]:
        if not self.drops and not set().union(*values) <= self.members.keys():
            raise TypeError
        return [column.fast([value.get(name) for value in values]) for name, column in self.members.items()]

    def fast(self, values: List[Any]) -> Any:
        self.check(values)
        if None not in values:
            return pa.StructArray.from_arrays(self.fast_members(values), fields=list(self.arrow))
        if any(column.is_required for column in self.members.values()):
            raise TypeError
        arrays = self.fast_members([{} if value is None else value for value in values])
        return pa.StructArray.from_arrays(arrays, fields=list(self.arrow), mask=pa.array([value is None for value in values]))

    def clean(self, value: Any, path: str) -> Dict[str, Any]:
        if type(value) is not dict:
            raise self.unfit(value, path)
        if not self.drops and not value.keys() <= self.members.keys():
            name = next(name for name in value if name not in self.members)
            raise Unfit(f"the schema has no '{_inside(path, name)[:100]}'".encode(errors="replace").decode())
        return {name: column.clean_one(value.get(name), _inside(path, name)) for name, column in self.members.items()}


class Mapping(Column):
    kinds, wanted = (dict,), "an object"

    def __init__(self, of: Column) -> None:
        super().__init__(pa.map_(pa.string(), of.field("value")))
        self.of = of

    def fast(self, values: List[Any]) -> Any:
        raise TypeError

    def clean(self, value: Any, path: str) -> List[Tuple[str, Any]]:
        if type(value) is not dict:
            raise self.unfit(value, path)
        return [(_NAME.clean(name, path), self.of.clean_one(member, _inside(path, name))) for name, member in value.items()]


_NAME = Text(pa.string())

# ---- The texts of types ----

_SIMPLE: Dict[str, Callable[[], Column]] = {
    "boolean": lambda: Boolean(pa.bool_()), "string": lambda: Text(pa.string()), "json": lambda: Document(pa.string()),
    "binary": lambda: Binary(pa.binary()), "date": lambda: Day(pa.date32()), "duration": lambda: Span(pa.duration("ns")),
    "timestamp": lambda: Instant("us"), "double": lambda: Number(pa.float64(), 1.7976931348623157e308),
    "float": lambda: Number(pa.float32(), 3.4028234663852886e38),
    **{f"int{bits}": lambda bits=bits: Whole(getattr(pa, f"int{bits}")(), bits, True) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": lambda bits=bits: Whole(getattr(pa, f"uint{bits}")(), bits, False) for bits in (8, 16, 32, 64)}}
_WORD = re.compile(r"\s*([A-Za-z_]\w*|\d+|[<>:,()\[\]!]|\"(?:[^\"\\]|\\.)*\"|\S)")


class _Reader:
    def __init__(self, text: str, drops: bool) -> None:
        self.words, self.at, self.drops, self.text = _WORD.findall(text), 0, drops, text

    def next(self) -> str:
        self.at += 1
        return self.words[self.at - 1] if self.at <= len(self.words) else ""

    def takes(self, word: str) -> bool:
        if self.at < len(self.words) and self.words[self.at] == word:
            self.at += 1
            return True
        return False

    def need(self, word: str) -> None:
        if not self.takes(word):
            found = self.words[self.at] if self.at < len(self.words) else "its end"
            raise WrongType(f"'{self.text[:80]}' has {found} where '{word}' must stand")

    def number(self, least: int, most: int) -> int:
        word = self.next()
        if not word.isdigit() or not least <= int(word) <= most:
            raise WrongType(f"'{self.text[:80]}' has '{word}' where a number from {least} to {most} must stand")
        return int(word)

    def type(self, depth: int) -> Column:
        if depth > DEPTH_MOST:
            raise WrongType(f"'{self.text[:80]}' has more than {DEPTH_MOST} types within each other")
        word = self.next()
        made: Column
        if word == "timestamp" and self.takes("["):
            unit = self.next()
            if unit not in ("ms", "us", "ns"):
                raise WrongType(f"'{self.text[:80]}' has the unit '{unit}', and must have ms, us or ns")
            made = Instant(unit)
            self.need("]")
        elif word == "decimal":
            self.need("(")
            digits = self.number(1, 38)
            self.need(",")
            made = Decimal(digits, self.number(0, digits))
            self.need(")")
        elif word in ("list", "map"):
            self.need("<")
            inner = self.type(depth + 1)
            made = Sequence(inner) if word == "list" else Mapping(inner)
            self.need(">")
        elif word == "struct":
            self.need("<")
            members: Dict[str, Column] = {}
            while not members or self.takes(","):
                name = self.next()
                if name.startswith("\"") and len(name) > 1:
                    name = json.loads(name)
                if name in members or name in ("", ">", ":", ","):
                    raise WrongType(f"'{self.text[:80]}' has '{name}' where the name of another member must stand")
                self.need(":")
                members[name] = self.type(depth + 1)
            made = Structure(members, self.drops)
            self.need(">")
        elif word in _SIMPLE:
            made = _SIMPLE[word]()
        else:
            raise WrongType(f"there is no type '{word}'; there are {', '.join([*_SIMPLE, 'timestamp[ns]', 'decimal(10, 2)', 'list<...>', 'map<...>', 'struct<name: ...>'])}")
        made.is_required = self.takes("!")
        return made


def read_type(text: str, drops: bool) -> Column:
    """The column of a text such as ``list<struct<a: int64!, b: string>>``; ``!``: it is never null."""
    reader = _Reader(text, drops)
    made = reader.type(0)
    if reader.at < len(reader.words):
        raise WrongType(f"'{text[:80]}' goes on behind the type with '{reader.next()}'")
    return made


# ---- Inferred types ----


def _is_unicode(name: str) -> bool:
    try:
        name.encode()
        return True
    except UnicodeEncodeError:
        return False


class _Inference:
    def __init__(self) -> None:
        self.left = COLUMNS_MOST

    def members(self, objects: Iterable[Any], depth: int) -> Dict[str, Column]:
        found: Dict[str, List[Any]] = {}
        for value in objects:
            for name, member in value.items():
                if name in found:
                    found[name].append(member)
                elif self.left > 0 and _is_unicode(name):
                    self.left -= 1
                    found[name] = [member]
        return {name: self.column(values, depth + 1) for name, values in found.items()}

    def column(self, values: List[Any], depth: int) -> Column:
        kinds = set(map(type, values)) - {_NULL}
        if kinds == {int, float}:
            kinds = {float}
        if len(kinds) > 1:
            first = type(next(value for value in values if value is not None))
            kinds = {float} if first in (int, float) and {int, float} <= kinds else {first}
        if depth > DEPTH_MOST and kinds & {list, dict}:
            return _SIMPLE["json"]()
        if kinds == {dict}:
            members = self.members((value for value in values if type(value) is dict), depth)
            return Structure(members, False) if members else _SIMPLE["json"]()
        if kinds == {list}:
            return Sequence(self.column(list(chain.from_iterable(value for value in values if type(value) is list)), depth + 1))
        if kinds == {int}:
            is_large = any(type(value) is int and 2**63 <= value < 2**64 for value in values)
            return _SIMPLE["uint64" if is_large and not any(type(value) is int and value < 0 for value in values) else "int64"]()
        return _SIMPLE[{bool: "boolean", float: "double", str: "string"}.get(next(iter(kinds), str), "string")]()


def infer(events: List[Dict[str, Any]]) -> Structure:
    """The type of events. Of values of different kinds the first decides; a column of which all are null is text."""
    return Structure(_Inference().members(events, 0), False)


# ---- Tables ----


def table_of(schema: Structure, events: List[Any]) -> Tuple[Any, Dict[int, str]]:
    """The table of the events that fit, and the reasons of the others by index."""
    fields = pa.schema(list(schema.arrow))
    try:
        if set(map(type, events)) == {dict}:
            return pa.Table.from_arrays(schema.fast_members(events), schema=fields), {}
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        pass
    rows: List[Dict[str, Any]] = []
    refused: Dict[int, str] = {}
    for index, event in enumerate(events):
        try:
            rows.append(schema.clean(event, "") if type(event) is dict else _no_object(event))
        except Unfit as reason:
            refused[index] = str(reason)
    arrays = [pa.array([row[name] for row in rows], column.arrow) for name, column in schema.members.items()]
    return pa.Table.from_arrays(arrays, schema=fields), refused


def _no_object(event: Any) -> Dict[str, Any]:
    raise Unfit(f"the event is {shown(event)}, and must be an object")


def columns_of(events: List[Any], schema: Optional[Structure]) -> Structure:
    return schema if schema is not None else infer([event for event in events if type(event) is dict])
