"""The command figure: every chart of the pages by its name, as HTML that needs no network and as plotly's JSON."""

import json
import sys
from html.parser import HTMLParser

import plotly.io
import pytest
from test_cli import READY, SMALL_FLEET, assert_one_line, called, printed

from kvplan import Plan, curves, evaluate, figures, load_preset, paging_figures, pool, pool_figures, verdict
from kvplan.charts import CHARTS, draw
from kvplan.palette import DARK, LIGHT

SMALL = Plan(**SMALL_FLEET, arrival_rate=6.0, context=2048)
FIELDS = [f"--set={name}={value}" for name, value in {**SMALL_FLEET, "arrival_rate": 6.0, "context": 2048}.items()]
LOADS = {"src", "href", "data", "action", "poster", "srcset"}


class Tags(HTMLParser):
    """What a page in HTML would load, its words outside scripts and styles, and its tags."""

    def __init__(self, text):
        super().__init__()
        self.loads, self.words, self.tags, self.inside = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.inside.append(tag)
        self.loads += [value for name, value in attrs if name in LOADS]

    def handle_endtag(self, tag):
        if tag in self.inside:
            while self.inside.pop() != tag:
                pass

    def handle_data(self, data):
        if not {"script", "style"} & set(self.inside):
            self.words.append(data)


@pytest.mark.parametrize("name", CHARTS)
def test_every_chart_of_the_list_is_drawn_on_the_page_of_its_theme(name):
    figure = json.loads(printed("figure", name, "--theme", "dark", *FIELDS))
    assert figure["data"]
    assert figure["layout"]["paper_bgcolor"] == DARK.page


@pytest.mark.parametrize("name", CHARTS)
def test_every_chart_is_as_plotly_would_have_checked_it(name):
    text = draw(name, evaluate(SMALL), LIGHT).to_json()
    assert json.loads(plotly.io.from_json(text).to_json()) == json.loads(text)


def test_what_is_changed_of_a_chart_is_checked_by_plotly():
    figure = draw("ceiling", evaluate(SMALL), LIGHT)
    figure.update_layout(title="words").update_xaxes(title="more").update_traces(line_width=2)
    assert (figure.layout.title.text, figure.layout.xaxis.title.text) == ("words", "more")
    with pytest.raises(ValueError, match="colour"):
        figure.update_layout(colour="red")
    with pytest.raises(ValueError, match="opacity"):
        figure.data[0].opacity = "much"


def test_a_chart_is_the_one_of_its_page():
    report = evaluate(load_preset(READY))
    curve = curves.plan_ceilings(report)
    others = curves.comparisons(report, curve)
    shown = [other for other in others if other.name in curves.preselected(others)]
    runs = pool.runs(report, pool.requests_of(report.setting, pool.usual_number(report)))
    pages = {
        "ceiling": figures.ceiling_figure(report, curve, shown, curves.ceiling_top(curve, others)),
        "memory": figures.memory_figure(report),
        "batching": figures.utilisation_figure(report, curves.utilisation(report)),
        "waste": paging_figures.waste_figure(report, curves.block_waste(report)),
        "pool-on-demand": pool_figures.occupancy_figure(report, runs.on_demand, pool_figures.last_step(runs)),
    }
    for name, page in pages.items():
        assert draw(name, report, LIGHT) == page.update_layout(paper_bgcolor=LIGHT.page)


def test_a_chart_does_not_depend_on_the_default_template(monkeypatch):
    report = evaluate(SMALL)
    plain = draw("ceiling", report, LIGHT).to_json()
    monkeypatch.setattr(plotly.io.templates, "default", "plotly_dark")
    assert draw("ceiling", report, LIGHT).to_json() == plain
    assert "template" in json.loads(plain)["layout"]


def test_html_has_the_script_in_it_and_loads_nothing(tmp_path):
    path = tmp_path / "ceiling.html"
    assert printed("figure", "ceiling", "--preset", READY, "-o", str(path)) == ""
    page = Tags(path.read_text(encoding="utf-8"))
    assert page.loads == []
    assert page.tags.count("script") == 2
    assert "".join(page.words).count("13 sequences of 32,768 tokens fit on 4 × H100 SXM") == 1
    assert "Batch ceiling against context" in page.words


def test_json_of_a_file_is_that_of_standard_output_and_has_the_report_s_numbers(tmp_path):
    path = tmp_path / "memory.json"
    assert printed("figure", "memory", "--preset", READY, "-o", str(path)) == ""
    assert path.read_text(encoding="utf-8") == printed("figure", "memory", "--preset", READY)
    memory = evaluate(load_preset(READY)).memory
    drawn = sum(bar["y"][0] for bar in json.loads(path.read_text(encoding="utf-8"))["data"])
    assert drawn == pytest.approx(memory.total_bytes / 2**30)


def test_names_of_levers_are_no_links_outside_the_dashboard():
    assert "href" not in printed("figure", "levers-ceiling", *FIELDS)


def test_the_list_and_the_help_name_every_chart():
    listed = [line.split()[0] for line in printed("figure", "--list").splitlines()]
    assert listed == list(CHARTS)
    assert all(f"  {name} " in printed("figure", "--help") for name in CHARTS)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([], "figure: a chart is needed, one of ceiling, memory"),
        (["ceilng"], "figure: no chart named 'ceilng'; nearest: ceiling"),
        (["zzz"], "figure: no chart named 'zzz'; there are ceiling"),
        (["memory", "-o", "memory.png"], "-o: must end in .html, .json, got 'memory.png'"),
        (["memory", "-o", "no/such/folder/memory.json"], "-o: no/such/folder/memory.json cannot be written"),
        (["memory", "--theme", "blue"], "--theme"),
        (["memory", "--set", "model=llama-9"], "model: no preset named"),
        (["pool-reserve", "--set", "tp=3"], "pool-reserve: not one request of this plan runs"),
        (["waste", "--set", "model=falcon-mamba-7b"], "waste: no layer of this model grows"),
        (["fleet", "--set", "workload=auto"], "fleet: arrival_rate: a fleet needs"),
    ],
)
def test_what_cannot_be_drawn_is_one_line(arguments, named):
    run = called("figure", *arguments)
    assert_one_line(run)
    assert named in run.stderr


def test_without_plotly_one_line_says_what_brings_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly", None)
    run = called("figure", "memory")
    assert_one_line(run)
    assert run.stderr == "kvplan: figure: a chart needs plotly, which comes with pip install 'kvplan[dashboard]'\n"


def test_a_plan_that_does_not_fit_still_shows_where_its_memory_would_go():
    report = evaluate(Plan(model="llama-3.1-70b"))
    assert "Does not fit" in verdict.ceiling(report).sentence
    assert draw("memory", report, LIGHT).data
