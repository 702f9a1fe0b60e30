import pytest
from fake_llm import FakeLLM


@pytest.fixture
def server(monkeypatch):
    for variable in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(variable, raising=False)
    with FakeLLM() as llm:
        yield llm
