#!/usr/bin/env python3
"""Writes expressions with the results of cel-expr-python (Google's cel-cpp), as conformance vectors.

usage: differential.py COUNT SEED FILE

Half of the expressions are generated from a grammar that knows types and sometimes makes deliberate mistakes, half are vectors of the public suite
with swapped tokens. `conformance FILE` then prints where this implementation differs.
"""
import base64
import datetime
import json
import math
import os
import random
import re
import sys

from cel_expr_python import cel
from cel_expr_python.ext import ext_bindings, ext_encoders, ext_math, ext_optional, ext_strings

EVENT = {
    "i": 7, "n": -3, "big": 9007199254740993, "d": 2.5, "w": 4.0, "s": "héllo", "e": "", "t": True, "z": None,
    "l": [3, 1, 2], "ls": ["b", "a", "é"], "m": {"a": 1, "b": {"c": "x"}}, "k": {"x": 1.5, "y": None},
}
# cel-expr-python 0.1.3 releases one reference to None too many for each null that it returns.
SPARE = [None] * 10_000_000
ENV = cel.NewEnv(
    variables={"event": cel.Type.DYN},
    extensions=[
        ext_bindings.ExtBindings(), ext_encoders.ExtEncoders(), ext_math.ExtMath(), ext_optional.ExtOptional(),
        ext_strings.ExtStrings(),
    ])


def typed_plain(value):
    """An event in the notation of the vectors."""
    if value is None:
        return {"null": None}
    if isinstance(value, bool):
        return {"bool": value}
    if isinstance(value, int):
        return {"int": str(value)}
    if isinstance(value, float):
        return {"double": value}
    if isinstance(value, str):
        return {"string": value}
    if isinstance(value, list):
        return {"list": [typed_plain(element) for element in value]}
    return {"map": [[{"string": key}, typed_plain(member)] for key, member in value.items()]}


class Unfit(Exception):
    """The binding does not reveal enough about the value."""


def typed(value):
    """A result in the notation of the vectors."""
    name = value.type().name()
    plain = value.value() if name not in ("OPTIONAL",) else None
    if name == "NULL":
        return {"null": None}
    if name == "BOOL":
        return {"bool": plain}
    if name == "INT":
        return {"int": str(plain)}
    if name == "UINT":
        return {"uint": str(plain)}
    if name == "DOUBLE":
        if math.isnan(plain):
            return {"double": "NaN"}
        if math.isinf(plain):
            return {"double": "Infinity" if plain > 0 else "-Infinity"}
        return {"double": repr(plain)}
    if name == "STRING":
        return {"string": plain}
    if name == "BYTES":
        return {"bytes": base64.b64encode(bytes(plain)).decode()}
    if name.startswith("LIST"):
        return {"list": [typed(element) for element in plain]}
    if name.startswith("MAP"):
        if any(not isinstance(key, str) for key in plain):
            raise Unfit("keys lose their type")
        return {"map": [[{"string": key}, typed(member)] for key, member in plain.items()]}
    raise Unfit(name)


def outcome(text):
    try:
        compiled = ENV.compile(text)
    except RuntimeError as error:
        return {"error": "refused: " + str(error).splitlines()[0][:200]}
    try:
        value = compiled.eval(data={"event": EVENT})
        if value.type().name() == "ERROR":
            return {"error": str(value.value())[:200]}
        return {"value": typed(value)}
    except TypeError as error:
        raise Unfit(str(error)) from error
    except (OverflowError, ValueError) as error:
        raise Unfit(str(error)) from error
    except RuntimeError as error:
        return {"error": str(error).splitlines()[0][:200]}


# Expressions by type

def pick(*options):
    return random.choice(options)


def literal_int():
    return pick("0", "1", "2", "-1", "7", "10", "100", "9223372036854775807", "-9223372036854775808", "4294967296", "0x1F")


def literal_string():
    return pick("''", "'a'", "'abc'", "'héllo'", "'e\\u0301'", "'A b,C'", "'1'", "'-7'", "'1.5'", "'true'", "'日本'",
                "'\\U0001F431'", "r'a\\d'", "'%s'", "' x\\t'", '"q\'q"')


def of(kind, depth, names=()):
    """An expression of a kind; now and then of another kind."""
    if random.random() < 0.03:
        kind = pick("int", "uint", "double", "string", "bool", "bytes", "list", "map", "null")
    if depth <= 0 or random.random() < 0.15:
        return leaf(kind, names)
    return MAKERS[kind](depth - 1, names)


def leaf(kind, names):
    fitting = [name for name, its in names if its == kind]
    if fitting and random.random() < 0.6:
        return random.choice(fitting)
    return {
        "int": lambda: pick(literal_int(), literal_int(), "event.i", "event.n", "event.big", "event.m.a", "event.l[0]"),
        "uint": lambda: pick("0u", "1u", "7u", "18446744073709551615u", "uint(5)"),
        "double": lambda: pick("0.0", "1.5", "-2.5", "1e10", "1e-7", "double('NaN')", "double('inf')", "event.d",
                               "event.w", "123456789.0", "0.1"),
        "string": lambda: pick(literal_string(), literal_string(), "event.s", "event.e", "event.ls[1]", "event.m.b.c"),
        "bool": lambda: pick("true", "false", "event.t", "has(event.m.a)", "has(event.m.q)", "event.nothing"),
        "bytes": lambda: pick("b''", "b'abc'", "b'\\xff'", "bytes('é')"),
        "list": lambda: pick("[]", "[1, 2, 3]", "event.l", "[3, 1, 2]", "[0, -1]"),
        "strings": lambda: pick("['a', 'b']", "event.ls", "['x']", "['é', 'e\\u0301']"),
        "map": lambda: pick("{}", "{'a': 1}", "event.m", "event.k", "{'x': 1, 'y': 2}"),
        "null": lambda: pick("null", "event.z", "event.k.y"),
        "time": lambda: pick("timestamp('2009-02-13T23:31:30Z')", "timestamp('1970-01-01T00:00:00.5Z')",
                             "timestamp('2024-02-29T12:00:00+02:00')", "timestamp(0)"),
        "span": lambda: pick("duration('1.5s')", "duration('-90m')", "duration('1h2m3s')", "duration('0s')"),
        "any": lambda: leaf(pick("int", "double", "string", "bool", "list", "null", "uint", "map"), names),
    }[kind]()


def some(depth, names):
    return of(pick("int", "double", "string", "bool", "list", "uint", "map", "null"), depth, names)


def make_int(d, n):
    x = "v%d" % len(n)
    return pick(
        lambda: "(%s %s %s)" % (of("int", d, n), pick("+", "-", "*", "/", "%"), of("int", d, n)),
        lambda: "-%s" % of("int", d, n).lstrip("-"),
        lambda: "size(%s)" % of(pick("string", "list", "map", "bytes", "strings"), d, n),
        lambda: "int(%s)" % of(pick("double", "string", "uint", "time", "int"), d, n),
        lambda: "(%s ? %s : %s)" % (of("bool", d, n), of("int", d, n), of("int", d, n)),
        lambda: "%s[%s]" % (of("list", d, n), of("int", 0, n)),
        lambda: "%s.indexOf(%s)" % (of("string", d, n), of("string", d, n)),
        lambda: "%s.lastIndexOf(%s)" % (of("string", d, n), of("string", d, n)),
        lambda: "math.%s(%s, %s)" % (pick("greatest", "least", "bitAnd", "bitOr", "bitXor"), of("int", d, n), of("int", d, n)),
        lambda: "math.%s(%s)" % (pick("abs", "sign", "bitNot"), of("int", d, n)),
        lambda: "math.%s(%s, %s)" % (pick("bitShiftLeft", "bitShiftRight"), of("int", d, n), pick("0", "1", "63", "64", "-1")),
        lambda: "%s.%s()" % (of("time", d, n), pick("getFullYear", "getMonth", "getDate", "getDayOfYear", "getDayOfWeek",
                                                    "getHours", "getMinutes", "getSeconds", "getMilliseconds")),
        lambda: "%s.%s()" % (of("span", d, n), pick("getHours", "getMinutes", "getSeconds")),
        lambda: "cel.bind(%s, %s, %s)" % (x, of("int", d, n), of("int", d, list(n) + [(x, "int")])),
        lambda: "event.?%s.orValue(%s)" % (pick("i", "q", "m.?a", "z"), of("int", d, n)),
    )()


def make_uint(d, n):
    return pick(
        lambda: "(%s %s %s)" % (of("uint", d, n), pick("+", "-", "*", "/", "%"), of("uint", d, n)),
        lambda: "uint(%s)" % of(pick("int", "double", "string", "uint"), d, n),
        lambda: "math.bitAnd(%s, %s)" % (of("uint", d, n), of("uint", d, n)),
    )()


def make_double(d, n):
    return pick(
        lambda: "(%s %s %s)" % (of("double", d, n), pick("+", "-", "*", "/"), of("double", d, n)),
        lambda: "double(%s)" % of(pick("int", "string", "uint", "double"), d, n),
        lambda: "math.%s(%s)" % (pick("ceil", "floor", "round", "trunc", "abs", "sign", "sqrt"), of("double", d, n)),
        lambda: "math.greatest(%s, %s)" % (of("double", d, n), of("double", d, n)),
        lambda: "math.least(%s, %s)" % (of("double", d, n), of("int", d, n)),
        lambda: "(%s ? %s : %s)" % (of("bool", d, n), of("double", d, n), of("double", d, n)),
    )()


def make_string(d, n):
    return pick(
        lambda: "(%s + %s)" % (of("string", d, n), of("string", d, n)),
        lambda: "string(%s)" % of(pick("int", "uint", "double", "bool", "bytes", "string", "time", "span"), d, n),
        lambda: "%s.substring(%s)" % (of("string", d, n), pick("0", "1", "2", "-1", "9")),
        lambda: "%s.substring(%s, %s)" % (of("string", d, n), pick("0", "1", "2"), pick("0", "1", "3", "9")),
        lambda: "%s.charAt(%s)" % (of("string", d, n), pick("0", "1", "5", "-1")),
        lambda: "%s.%s()" % (of("string", d, n), pick("lowerAscii", "upperAscii", "trim", "reverse")),
        lambda: "%s.replace(%s, %s)" % (of("string", d, n), of("string", d, n), of("string", d, n)),
        lambda: "%s.replace(%s, %s, %s)" % (of("string", d, n), of("string", d, n), of("string", d, n), pick("0", "1", "-1")),
        lambda: "%s.join(%s)" % (of("strings", d, n), of("string", 0, n)),
        lambda: "%s.join()" % of("strings", d, n),
        lambda: "strings.quote(%s)" % of("string", d, n),
        lambda: "%s.format([%s])" % (pick("'%s'", "'%d'", "'%.2f'", "'%e'", "'%x'", "'%X'", "'%o'", "'%b'", "'%.0f'",
                                          "'%s%%'"), some(d, n)),
        lambda: "base64.encode(%s)" % of("bytes", d, n),
        lambda: "(%s ? %s : %s)" % (of("bool", d, n), of("string", d, n), of("string", d, n)),
        lambda: "event.?%s.orValue(%s)" % (pick("s", "q", "m.?b.?c"), of("string", d, n)),
    )()


def make_bool(d, n):
    x = "v%d" % len(n)
    inner = list(n) + [(x, "int")]
    kind = pick("int", "double", "string", "uint", "time", "span", "bytes", "bool")
    return pick(
        lambda: "(%s %s %s)" % (of(kind, d, n), pick("<", "<=", ">", ">=", "==", "!="), of(kind, d, n)),
        lambda: "(dyn(%s) %s %s)" % (some(d, n), pick("<", "<=", ">", ">=", "==", "!="), some(d, n)),
        lambda: "(%s %s %s)" % (of("bool", d, n), pick("&&", "||"), of("bool", d, n)),
        lambda: "(%s %s %s %s %s)" % (of("bool", d, n), pick("&&", "||"), of("bool", d, n), pick("&&", "||"), of("bool", d, n)),
        lambda: "!%s" % of("bool", d, n),
        lambda: "(%s in %s)" % (of("int", d, n), of("list", d, n)),
        lambda: "(%s in %s)" % (of("string", d, n), of(pick("strings", "map"), d, n)),
        lambda: "%s.%s(%s)" % (of("string", d, n), pick("startsWith", "endsWith", "contains"), of("string", d, n)),
        lambda: "%s.matches(%s)" % (of("string", d, n), pick("'^a'", "'[0-9]+'", "'é'", "'(a|b)*c$'", "'\\\\pL'", "'('", "'.'")),
        lambda: "%s.%s(%s, %s)" % (of("list", d, n), pick("all", "exists", "exists_one"), x, of("bool", d, inner)),
        lambda: "%s.%s(%s, %s %s %s)" % (of("list", d, n), pick("all", "exists", "exists_one"), x, x,
                                          pick("<", ">", "=="), of("int", d, inner)),
        lambda: "math.%s(%s)" % (pick("isNaN", "isInf", "isFinite"), of("double", d, n)),
        lambda: "has(%s.%s)" % (pick("event", "event.m", "event.m.b", "event.k", "{'a': 1}"), pick("a", "b", "x", "y", "q")),
        lambda: "bool(%s)" % of("string", d, n),
        lambda: "(type(%s) == %s)" % (some(d, n), pick("int", "string", "list", "map", "type(1)", "double", "null_type")),
        lambda: "event.?%s.hasValue()" % pick("i", "q", "m.?a", "z", "m.?q.?r"),
        lambda: "(%s ? %s : %s)" % (of("bool", d, n), of("bool", d, n), of("bool", d, n)),
    )()


def make_bytes(d, n):
    return pick(
        lambda: "bytes(%s)" % of("string", d, n),
        lambda: "(%s + %s)" % (of("bytes", d, n), of("bytes", d, n)),
        lambda: "base64.decode(%s)" % pick("'aGk='", "'aGk'", "'?'", "base64.encode(b'x')"),
    )()


def make_list(d, n):
    x = "v%d" % len(n)
    inner = list(n) + [(x, "int")]
    return pick(
        lambda: "[%s, %s]" % (of("int", d, n), of("int", d, n)),
        lambda: "(%s + %s)" % (of("list", d, n), of("list", d, n)),
        lambda: "%s.map(%s, %s)" % (of("list", d, n), x, of("int", d, inner)),
        lambda: "%s.filter(%s, %s)" % (of("list", d, n), x, of("bool", d, inner)),
        lambda: "%s.map(%s, %s, %s)" % (of("list", d, n), x, of("bool", d, inner), of("int", d, inner)),
        lambda: "[?event.?%s, %s]" % (pick("i", "q"), of("int", d, n)),
        lambda: "(%s ? %s : %s)" % (of("bool", d, n), of("list", d, n), of("list", d, n)),
    )()


def make_strings(d, n):
    x = "v%d" % len(n)
    return pick(
        lambda: "[%s, %s]" % (of("string", d, n), of("string", d, n)),
        lambda: "%s.split(%s)" % (of("string", d, n), of("string", 0, n)),
        lambda: "%s.split(%s, %s)" % (of("string", d, n), of("string", 0, n), pick("0", "1", "2", "-1")),
        lambda: "%s.map(%s, %s)" % (of("strings", d, n), x, of("string", d, list(n) + [(x, "string")])),
        lambda: "(%s + %s)" % (of("strings", d, n), of("strings", d, n)),
    )()


def make_map(d, n):
    return pick(
        lambda: "{%s: %s}" % (of("string", 0, n), some(d, n)),
        lambda: "{'p': %s, 'q': %s}" % (some(d, n), some(d, n)),
        lambda: "{?'p': event.?%s, 'q': %s}" % (pick("i", "q"), some(d, n)),
    )()


def make_time(d, n):
    return pick(
        lambda: "(%s %s %s)" % (of("time", d, n), pick("+", "-"), of("span", d, n)),
        lambda: "timestamp(%s)" % of(pick("string", "int", "time"), d, n),
    )()


def make_span(d, n):
    return pick(
        lambda: "(%s %s %s)" % (of("span", d, n), pick("+", "-"), of("span", d, n)),
        lambda: "(%s - %s)" % (of("time", d, n), of("time", d, n)),
        lambda: "duration(%s)" % of(pick("string", "span"), d, n),
    )()


MAKERS = {
    "int": make_int, "uint": make_uint, "double": make_double, "string": make_string, "bool": make_bool,
    "bytes": make_bytes, "list": make_list, "strings": make_strings, "map": make_map, "time": make_time,
    "span": make_span, "null": lambda d, n: leaf("null", n), "any": some,
}


# Vectors with swapped tokens

TOKEN = re.compile(r"""[rRbB]{0,2}'''.*?'''|[rRbB]{0,2}'(?:[^'\\\n]|\\.)*'|[rRbB]{0,2}"(?:[^"\\\n]|\\.)*"|\d[\w.]*|\w+|&&|\|\||[<>=!]=|\s+|.""", re.S)
PROFILES = {"core", "ext:strings", "ext:math", "ext:encoders", "ext:bindings", "optionals"}


def suite():
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "shared", "conformance", "cel", "vectors.json")
    if not os.path.exists(path):
        return []
    with open(path) as file:
        vectors = json.load(file)
    return [
        TOKEN.findall(vector["expr"]) for vector in vectors
        if vector.get("applies") and vector["profile"] in PROFILES and not vector.get("bindings")
        and not vector.get("type_env") and not vector.get("container")
    ]


def mutated(all_tokens, pool):
    tokens = list(random.choice(all_tokens))
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        at = random.randrange(len(tokens))
        what = random.random()
        if what < 0.7:
            kind = tokens[at]
            same = [token for token in random.sample(pool, 40) if alike(token, kind)]
            tokens[at] = random.choice(same or pool)
        elif what < 0.85 and len(tokens) > 1:
            del tokens[at]
        else:
            tokens.insert(at, random.choice(pool))
    return "".join(tokens)


def alike(a, b):
    def kind(token):
        return "s" if token[-1] in "'\"" else "n" if token[0].isdigit() else "w" if token[0].isalpha() else "p"
    return kind(a) == kind(b)


def main():
    count, seed, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    random.seed(seed)
    vectors = suite()
    pool = [token for tokens in vectors for token in tokens if not token.isspace()]
    event = typed_plain(EVENT)
    written = values = unfit = 0
    with open(path, "w") as file:
        file.write("[\n")
        while written < count:
            if vectors and random.random() < 0.5:
                text = mutated(vectors, pool)
            else:
                kind = pick("int", "uint", "double", "string", "bool", "bool", "bool", "bytes", "list", "strings", "map")
                text = of(kind, random.choice((1, 2, 2, 3, 3, 4)))
            if len(text) > 2000:
                continue
            try:
                expect = outcome(text)
            except Unfit:
                unfit += 1
                continue
            values += "value" in expect
            vector = {
                "file": "differential", "section": str(seed), "name": "%d/%d" % (seed, written), "expr": text,
                "bindings": {"event": event}, "type_env": [{"name": "event", "type": "dyn"}], "expect": expect,
                "disable_check": False, "profile": "core", "applies": True,
            }
            file.write((",\n" if written else "") + json.dumps(vector))
            written += 1
        file.write("\n]\n")
    sys.stdout.flush()
    print("%d expressions, %d with a value, %d left out" % (written, values, unfit), file=sys.stderr)


main()
sys.stderr.flush()
os._exit(0)
