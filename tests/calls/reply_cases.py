"""What servers and gateways are known to send, and what each reply comes to; and the loopback
server as it sends them.

An outcome is one word: `answered` (with text, `GOOD` or a beginning of it), `cut` (with text, and a
limit or a filter ended it), `refused` (by a filter, or an empty answer that ended by itself),
`truncated` (cut by the limit before its first word), or the kind of the failure, which ends as a
missing grade.

The next of a kind is one line. Names of projects with a number are public threads.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from loopback import Fault, LoopbackServer, Match

GOOD = "A good note."


class Case(NamedTuple):
    """One reply."""

    outcome: str
    body: bytes
    status: int = 200
    headers: Mapping[str, str] = {}


def json_body(value: Any) -> bytes:
    return json.dumps(value).encode()


def reply(outcome: str, message: Any, stop: Any = "stop", **beside: Any) -> Case:
    """Return a completion with one choice."""
    choices = [{"message": message, "finish_reason": stop}]
    return Case(outcome, json_body({"choices": choices, **beside}))


def choice(outcome: str, **fields: Any) -> Case:
    """Return a completion with a choice as given."""
    return Case(outcome, json_body({"choices": [fields]}))


def error(outcome: str, status: int, /, **fields: Any) -> Case:
    """Return an error."""
    return Case(outcome, json_body({"error": fields}), status)


def raw(outcome: str, text: str, status: int = 200, **headers: str) -> Case:
    """Return a body as it is written here: JSON of Python's own would not be so."""
    return Case(outcome, text.encode(), status, headers)


def message_case(outcome: str, content: str, stop: Any = "stop", **message: Any) -> Case:
    """Return a completion with a text."""
    return reply(outcome, {"role": "assistant", "content": content, **message}, stop)


def flat(outcome: str, status: int, /, **fields: Any) -> Case:
    """Return an error whose fields stand at the top."""
    return Case(outcome, json_body(fields), status)


def stream(outcome: str, *deltas: dict[str, Any], done: bool = True, start: str = "") -> Case:
    """Return a stream of events although none was asked for."""
    events = [json.dumps({"choices": [{"index": 0, **delta}]}) for delta in deltas]
    lines = [f"data: {event}\n\n" for event in events]
    end = "data: [DONE]\n\n" if done else ""
    return raw(outcome, start + "".join(lines) + end, **{"Content-Type": "text/event-stream"})


TEXT = {"role": "assistant", "content": GOOD}
TOOLS = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
FOUND = {"hate": {"filtered": False}, "violence": {"filtered": True, "severity": "high"}}
AZURE = {"code": "ResponsibleAIPolicyViolation", "content_filter_result": FOUND}
THOUGHT = {"type": "thinking", "thinking": []}
ODD_USAGE = '{"choices":[{"message":{"content":"A good note."}}],"usage":{"prompt_tokens":'

# fmt: off
CASES: Mapping[str, Case] = {
    # Text: answered, whatever the reason for its end, unless that says that it broke off
    "text": reply("answered", TEXT),
    "text, cut": reply("cut", TEXT, "length"),
    "text, no reason": reply("answered", TEXT, None),
    "text, reason absent": choice("answered", message=TEXT),
    "text, unknown reason": reply("answered", TEXT, "weather"),
    "text, reason is an object": reply("answered", TEXT, {"type": "stop"}),
    "text, tool_calls": reply("answered", TEXT | {"tool_calls": TOOLS}, "tool_calls"),
    "text in parts": reply("answered", {"content": [{"type": "text", "text": "A good "}, {"type": "text", "text": "note."}]}),
    "text among parts": reply("answered", {"content": [THOUGHT, {"type": "text", "text": GOOD}]}),
    "text after thinking": reply("answered", {"content": f"<think>plan</think>{GOOD}"}),
    "refusal field": reply("answered", {"content": None, "refusal": GOOD}),
    "text, abort": reply("broken_off", TEXT, "abort"),
    "text, error": reply("broken_off", TEXT, "error"),
    "text, error beside choices": reply("broken_off", TEXT, error={"message": "upstream is gone", "code": 502}),
    "text, error as a word": reply("broken_off", TEXT, error="overloaded"),
    "text, error within the choice": choice("broken_off", message=TEXT, finish_reason="stop", error={"message": "gone"}),
    # A good answer is not thrown away for what stands beside it
    "usage is a list": reply("answered", TEXT, usage=[]),
    "usage holds objects": reply("answered", TEXT, usage={"prompt_tokens": {}, "completion_tokens": [1]}),
    "usage is negative": reply("answered", TEXT, usage={"prompt_tokens": -5, "completion_tokens": -0.5}),
    "usage is 1e400": raw("answered", ODD_USAGE + "1e400}}"),
    "usage is endless": raw("answered", ODD_USAGE + "9" * 6000 + "}}"),
    "model is an object": reply("answered", TEXT, model={"id": "m"}),
    "error is null": reply("answered", TEXT, error=None),
    "index is a text": choice("answered", index="first", message=TEXT, finish_reason="stop", logprobs="none"),
    "second choice is null": Case("answered", json_body({"choices": [{"message": TEXT}, None]})),
    "refusal is false": reply("answered", TEXT | {"refusal": False}),
    "half a character": raw("answered", '{"choices":[{"message":{"content":"A good note \\ud83d"}}],"usage":[]}'),
    # No text
    "empty": reply("refused", {"content": ""}),
    "white space": reply("refused", {"content": " \n"}),
    "empty text part": reply("refused", {"content": [{"type": "text", "text": ""}]}),
    "filtered": reply("refused", {"content": None}, "content_filter"),
    "filtered half-way": reply("cut", TEXT, "content_filter"),
    "empty, cut": reply("truncated", {"content": ""}, "length"),
    "null, cut": reply("truncated", {"content": None, "reasoning_content": "a long plan"}, "length"),
    "thinking parts, cut": reply("truncated", {"content": [THOUGHT]}, "length"),
    "thinking, cut": reply("truncated", {"content": "<think>a long pl"}, "length"),
    "thinking never ended": reply("truncated", {"content": "<think>a long pl"}),
    "thinking never ended, no reason": reply("truncated", {"content": "a plan</think><think>a long pl"}, None),
    "thinking never ended, abort": reply("broken_off", {"content": "<think>a long pl"}, "abort"),
    "empty, no reason": reply("no_answer", {"content": ""}, None),
    "empty, unknown reason": reply("stop_reason:other", {"content": ""}, "OTHER"),
    "empty, tool_calls": reply("stop_reason:tool_calls", {"content": "", "tool_calls": TOOLS}, "tool_calls"),
    "null": reply("no_answer", {"content": None}),
    "null, no reason": reply("no_answer", {"content": None}, None),
    "null and an empty refusal": reply("no_answer", {"content": None, "refusal": ""}),
    "content absent": reply("no_answer", {"role": "assistant"}),
    "tool calls alone": reply("stop_reason:tool_calls", {"content": None, "tool_calls": TOOLS}, "tool_calls"),
    "message is null": reply("no_answer", None),
    "message is a text": reply("no_answer", GOOD),
    "legacy text": choice("no_answer", text=GOOD, finish_reason="stop"),
    "delta": choice("answered", delta={"content": GOOD}, finish_reason="stop"),
    "empty choice": choice("no_answer"),
    "empty, abort": reply("broken_off", {"content": ""}, "abort"),
    "image parts": reply("malformed", {"content": [{"type": "image_url", "image_url": {"url": "u"}}]}),
    "parts of another protocol": reply("malformed", {"content": [{"type": "output_text", "text": GOOD}]}),
    "content is a number": reply("malformed", {"content": 5}),
    "content is an object": reply("malformed", {"content": {"text": GOOD}}),
    # No completion at all
    "no choices": Case("malformed", b'{"choices": []}'),
    "choices is an object": Case("malformed", json_body({"choices": {"0": {"message": TEXT}}})),
    "a page": Case("malformed", b"<html>Welcome</html>"),
    # Errors: a filter's, by its fields
    "code": error("refused", 400, code="content_filter", message="The response was filtered."),
    "type": error("refused", 422, type="content_policy_violation", message="No."),
    "Azure": error("refused", 400, code=None, innererror=AZURE, message="Filtered."),
    "DashScope": error("refused", 400, code="data_inspection_failed", type="data_inspection_failed", message="Input data."),
    "Ark": error("refused", 400, code="SensitiveContentDetected.Violence", type="BadRequest", message="The input text."),
    "OpenRouter": error("refused", 403, code=403, message="Flagged.", metadata={"reasons": ["x"], "flagged_input": "a b"}),
    "OpenRouter, by type": error("refused", 403, code=403, metadata={"error_type": "content_policy_violation"}),
    "LiteLLM": error("refused", 400, code="400", message="m", provider_specific_fields={"innererror": AZURE}),
    "code without a wrapper": Case("refused", json_body({"object": "error", "code": "content_filter", "message": "m"}), 400),
    "OpenRouter in a 200": error("refused", 200, code=403, message="Flagged.", metadata={"flagged_input": "a b"}),
    # Errors: not a filter's, whatever they say
    "flagged account": error("forbidden", 403, message="Your account was flagged for potential abuse"),
    "moderate access": error("forbidden", 403, message="only moderate access"),
    "policy to accept": error("rejected", 400, message="You must accept the content_policy in your account settings"),
    "policy to accept, 403": error("forbidden", 403, message="You must accept the content policy first"),
    "prose alone": error("rejected", 400, code="invalid_request_error", message="Content Exists Risk"),
    "filter not applied": error("rejected", 400, code="content_filter_error", message="The contents are not filtered"),
    "invalid_prompt": error("rejected", 400, code="invalid_prompt", message="Your prompt was flagged"),
    "filter's words in a field of ours": error("rejected", 400, code="invalid_value", param="content_filter", message="m"),
    "metadata without a word": error("forbidden", 403, message="No.", metadata={"reasons": [], "flagged_input": None}),
    "overloaded": error("server", 503, code="content_filter", message="The content_filter is overloaded"),
    "no funds in a 200": error("no_credit", 200, code=402, message="moderation", metadata={"reasons": ["no credit"]}),
    # Reasoning and no text: the absence of text shows no intent
    "field": reply("reasoning_only", {"content": "", "reasoning_content": "plan"}),
    "field, null": reply("reasoning_only", {"content": None, "reasoning_content": "plan"}),
    "field of vLLM and Ollama": reply("reasoning_only", {"content": "", "reasoning": "The capital is Canberra."}),  # ollama#15288
    "field, no reason": reply("reasoning_only", {"content": None, "reasoning": "plan"}, None),
    "field, stop string in the thought": reply("reasoning_only", {"content": None, "reasoning": 'User asks "'}, "stop"),  # vllm#38499
    "details": reply("reasoning_only", {"content": "", "reasoning_details": [{"type": "reasoning.encrypted", "data": "x"}]}),
    "thinking of Ollama": reply("reasoning_only", {"content": "", "thinking": "Okay."}),
    "thinking blocks of LiteLLM": reply("reasoning_only", {"content": None, "provider_specific_fields": {"thinking_blocks": [{"thinking": "x"}]}}),
    "block": reply("reasoning_only", {"content": [{"type": "thinking", "thinking": "plan", "signature": "s"}]}, "end_turn"),
    "redacted block": reply("reasoning_only", {"content": [{"type": "redacted_thinking", "data": "x"}]}),
    "block of Mistral": reply("reasoning_only", {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "plan"}]}]}),
    "thought of Gemini": reply("reasoning_only", {"content": [{"type": "text", "text": "plan", "thought": True}]}),
    "closed thinking alone": reply("reasoning_only", {"content": "<think>plan</think>\n"}),
    "closing mark alone": reply("reasoning_only", {"content": "plan</think>\n"}),
    "other mark alone": reply("reasoning_only", {"content": "[THINK]plan[/THINK]"}),
    "channel alone": reply("reasoning_only", {"content": "<|channel|>analysis<|message|>plan<|end|>"}),
    "token counts": reply("reasoning_only", {"content": ""}, usage={"prompt_tokens": 9, "completion_tokens": 60, "completion_tokens_details": {"reasoning_tokens": 60}}),
    "token counts of SGLang": reply("reasoning_only", {"content": ""}, usage={"prompt_tokens": 9, "completion_tokens": 60, "reasoning_tokens": 60}),
    "no reasoning tokens": reply("refused", {"content": ""}, usage={"prompt_tokens": 9, "completion_tokens": 1, "completion_tokens_details": {"reasoning_tokens": 0}}),
    "empty reasoning field": reply("refused", {"content": "", "reasoning_content": "", "reasoning": None}),
    "no tokens at all": reply("no_answer", {"content": ""}, usage={"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}),  # ollama#13371
    # Reasoning before the text
    "mark with attributes": message_case("answered", f'<think signature="x" redacted="true">plan</think>{GOOD}'),
    "marks with a space": message_case("answered", f"<think >plan</think\n>{GOOD}"),  # qwen-code#10982
    "marks within marks": message_case("answered", f"<think>a<think>b</think>c</think>{GOOD}"),  # qwen-code#10982
    "marks twice": message_case("answered", f"<think>\n\n</think>\n\n</think>\n\n{GOOD}"),  # ms-swift#5005
    "opened in the template": message_case("answered", f"The user greets me.\n</think>\n{GOOD}"),  # AionUi#962
    "<thinking>": message_case("answered", f"<thinking>plan</thinking>\n{GOOD}"),
    "<thought>": message_case("answered", f"<thought>plan</thought>{GOOD}"),
    "<reasoning>": message_case("answered", f"<reasoning>plan</reasoning>{GOOD}"),
    "<reason>": message_case("answered", f"<reason>plan</reason>{GOOD}"),
    "<seed:think>": message_case("answered", f"<seed:think>a<seed:cot_budget_reflect>b</seed:cot_budget_reflect></seed:think>{GOOD}"),
    "[THINK]": message_case("answered", f"[THINK]plan[/THINK]{GOOD}"),
    "Kimi": message_case("answered", f"◁think▷plan◁/think▷{GOOD}"),
    "Cohere": message_case("answered", f"<|START_THINKING|>plan<|END_THINKING|><|START_RESPONSE|>{GOOD}<|END_RESPONSE|>"),
    "Gemma 4": message_case("answered", f"<|channel>thought\nplan<channel|>{GOOD}"),  # odysseus#2225
    "Hunyuan": message_case("answered", f"<think>\nplan\n</think>\n<answer>\n{GOOD}\n</answer>"),  # vllm#58127
    "Granite": message_case("answered", f"Here is my thought process: plan Here is my response: {GOOD}"),
    "harmony": message_case("answered", f"<|channel|>analysis<|message|>plan<|end|><|start|>assistant<|channel|>final<|message|>{GOOD}<|return|>"),
    "harmony without tokens": message_case("answered", f"analysisWe need to answer. And nothing else.assistantfinal{GOOD}"),  # macprovider#743
    "harmony without a final channel": message_case("answered", f"<|channel|>analysis<|message|>plan<|end|>{GOOD}"),  # llama.cpp#15181
    "harmony, final without its message": message_case("answered", f"<|channel|>analysis<|message|>plan<|end|><|start|>assistant<|channel|>final {GOOD}"),  # vllm#45736
    "harmony, commentary to the user": message_case("answered", f"<|channel|>commentary<|message|>{GOOD}<|end|>"),  # TensorRT-LLM#9256
    "harmony, a call": message_case("reasoning_only", "<|channel|>commentary to=functions.search<|message|>{}<|call|>"),  # odysseus#4522
    "blocks of Mistral": reply("answered", {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "plan"}]}, {"type": "text", "text": GOOD}]}),  # hermes-agent#4748
    "harmony, cut": message_case("truncated", "<|channel|>analysis<|message|>a long pl", "length"),
    "harmony without tokens, cut": message_case("truncated", "analysisWe need a long pl", "length"),
    "Granite, cut": message_case("truncated", "Here is my thought process: a long pl", "length"),
    "[THINK], cut": message_case("truncated", "[THINK]a long pl", "length"),
    # Stop reasons: one table, in any case, with - as _
    **{f"text, {stop}": message_case("answered", GOOD, stop) for stop in ("STOP", "end_turn", "eos", "eos_token", "COMPLETE", "stop-sequence", "FinishReason.STOP", "eosFound")},
    **{f"text, {stop}": message_case("cut", GOOD, stop) for stop in ("MAX_TOKENS", "max-tokens", "model_length", "model_context_window_exceeded", "maxPredictedTokensReached")},
    **{f"text, {stop}": message_case("cut", GOOD, stop) for stop in ("refusal", "SAFETY", "content-filter", "content_filter: HATE", "guardrail_intervened")},
    **{f"empty, {stop}": message_case("truncated", "", stop) for stop in ("MAX_TOKENS", "model_length")},
    **{
        f"empty, {stop}": message_case("refused", "", stop)
        for stop in ("refusal", "SAFETY", "CONTENT_FILTER", "content-filter", "content_filter: PROHIBITED_CONTENT", "BLOCKLIST", "SPII", "sensitive", "RECITATION", "end_turn", "STOP")
    },
    **{f"text, {stop}": message_case("broken_off", GOOD, stop) for stop in ("network_error", "MALFORMED_FUNCTION_CALL", "insufficient-system-resource", "userStopped")},
    "empty, language": reply("stop_reason:language", {"content": None}, "LANGUAGE"),
    "filter without a message": choice("refused", index=0, finish_reason="content_filter: SAFETY"),
    "filter without content": reply("refused", {"role": "assistant"}, "content_filter", usage={"prompt_tokens": 9}),  # langchain#5861
    "filter after reasoning": reply("refused", {"content": "", "reasoning": "plan"}, "content_filter"),
    "filter without tokens": reply("refused", {"content": ""}, "content_filter", usage={"prompt_tokens": 1296, "completion_tokens": 0}),  # chat-ollama#695
    "Azure's prompt filter in a 200": Case("refused", json_body({"choices": [], "prompt_filter_results": [{"prompt_index": 0, "content_filter_results": {"jailbreak": {"filtered": True}}}]})),
    "Azure's results without a verdict": Case("malformed", json_body({"choices": [], "prompt_filter_results": [{"content_filter_results": {"hate": {"filtered": False}}}]})),  # keep#6705
    "tool call of Gemini": reply("broken_off", {"content": None}, "UNEXPECTED_TOOL_CALL"),  # req_llm#944
    "error with a native reason": reply("broken_off", {"content": None}, "error"),  # litellm#23273
    "no parts": Case("malformed", json_body({"choices": [], "usage": {"prompt_tokens": 4241, "completion_tokens": 0}})),  # litellm#40477
    # Streams, and other bodies around a completion
    "stream": stream("answered", {"delta": {"role": "assistant", "content": ""}}, {"delta": {"content": "A good "}}, {"delta": {"content": "note."}, "finish_reason": "stop"}),
    "stream with comments": stream("answered", {"delta": {"content": GOOD}, "finish_reason": "stop"}, start=": OPENROUTER PROCESSING\n\n: ping\n\n"),  # openai-go#227
    "stream of reasoning": stream("reasoning_only", {"delta": {"reasoning_content": "a pl"}}, {"delta": {"reasoning_content": "an"}, "finish_reason": "stop"}),
    "stream with thinking": stream("answered", {"delta": {"content": "<think>pl"}}, {"delta": {"content": f"an</think>{GOOD}"}, "finish_reason": "stop"}),
    "stream, cut": stream("cut", {"delta": {"content": GOOD}}, {"delta": {}, "finish_reason": "length"}),
    "stream, not ended": stream("broken_off", {"delta": {"content": "A good "}}, done=False),
    "stream with an error": raw("broken_off", 'data: {"choices":[{"delta":{"content":"A good"}}]}\n\ndata: {"error":{"message":"quota exceeded"}}\n\ndata: [DONE]\n'),
    "stream of an error": raw("malformed", 'data: {"error":{"message":"quota exceeded"}}\n\ndata: [DONE]\n\n'),  # rocketmq-dashboard#2178
    "stream of an error with a status": raw("rate_limited", 'data: {"error":{"code":429,"message":"Provider returned error"}}\n\n'),
    "stream without spaces": raw("answered", 'data:{"choices":[{"delta":{"content":"A good note."},"finish_reason":"stop"}]}\n\ndata:[DONE]\n\n'),  # huggingface_hub#4536
    "error: in a stream": raw("server", 'error: {"code":500,"message":"gone","type":"server_error"}\n\n'),  # llama.cpp#16109
    "completion, then [DONE]": raw("answered", '{"choices":[{"message":{"content":"A good note."},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'),
    "blank lines before": raw("answered", '\n\n\n\n{"choices":[{"message":{"content":"A good note."},"finish_reason":"stop"}]}'),  # DeepSeek's documentation
    "blank lines alone": raw("malformed", "\n\n\n\n"),
    "space before": raw("answered", ' {"choices":[{"message":{"content":"A good note."},"finish_reason":"stop"}]}'),  # omlx#2066
    "two objects": raw("answered", '{"choices":[{"delta":{"content":"A good "},"index":0}]}{"choices":[{"delta":{"content":"note."},"finish_reason":"stop","index":0}]}'),  # openai-python#663
    "lines of another protocol": raw("malformed", '{"model":"g","response":" Yes","done":false}\n{"error":"an error was encountered"}\n'),  # ollama#1728
    "text in a stream": raw("malformed", "event: error\ndata: Too many requests, please slow down\n\n"),  # ai_clients_dart#88
    # Limits that pass, whatever they sound like
    "quota and billing, with a delay": error("rate_limited", 429, message="You exceeded your current quota, please check your plan and billing details. Please retry in 2.1s.", status="RESOURCE_EXHAUSTED"),
    "RetryInfo": error("rate_limited", 429, code=429, message="You exceeded your current quota, please check your plan and billing details.", details=[{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "2.1s"}]),
    "quota, without a code": error("rate_limited", 429, message="You exceeded your current quota, please check your plan and billing details."),
    "insufficient_quota with Retry-After": raw("rate_limited", '{"error":{"code":"insufficient_quota","message":"q"}}', 429, **{"Retry-After": "1"}),
    "quota a minute": flat("rate_limited", 429, message="Requests per minute limit exceeded", type="too_many_requests_error", param="quota", code="request_quota_exceeded"),  # grammar-nazi-bot#959
    "limit as an invalid request": error("rate_limited", 429, code="rate_limit_error", type="invalid_request_error", message="This request would exceed the rate limit"),  # OpenManus#746
    "limit in an array": Case("rate_limited", json_body([{"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "Quota exceeded", "errors": [{"reason": "rateLimitExceeded"}]}}]), 429),  # gemini-cli#10513
    "credits in flight": error("rate_limited", 402, code=402, message="m", metadata={"reason": "in_flight_budget_exhausted"}),
    "flex capacity": error("rate_limited", 498, message="capacity_exceeded"),
    "overloaded, 529": flat("rate_limited", 529, type="error", error={"type": "overloaded_error", "message": "Overloaded"}),
    "a limit in a 200": flat("rate_limited", 200, code="rate_limit_daily", message="Error code: 429"),  # xaibo#36
    "loading": error("server", 503, code=503, message="Loading model", type="unavailable_error"),  # llama-swap#146
    "busy": Case("server", json_body({"error": "server busy, please try again. maximum pending requests exceeded"}), 503),  # ollama#4159
    "nested overload": error("server", 503, code=503, status="Service Unavailable", message='{"error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}}'),  # gemini-cli#15745
    "a page of the proxy": raw("server", "<html><head><title>502 Bad Gateway</title></head></html>", 502),  # perplexity#284
    "larger than the limit": error("rejected", 413, type="tokens", code="rate_limit_exceeded", message="Request too large for model"),  # podscript#20
    # Failures that every call meets, by code and status
    "no credit as a limit": error("no_credit", 429, type="exceeded_current_quota_error", message="Your account is suspended"),  # kimi-code#1860
    "no credit behind a gateway": error("no_credit", 429, code=429, message="Provider returned error", metadata={"raw": '{"error":{"message":"suspended","type":"exceeded_current_quota_error"}}'}),  # opencode#25458
    "no credit as a number": error("no_credit", 429, code="1113", message="Insufficient balance or no resource package."),  # stella#2
    "no credit as a server error": error("no_credit", 500, type="insufficient_balance_error", message="insufficient balance (1008)"),
    "no credit, 403": flat("no_credit", 403, code="INSUFFICIENT_BALANCE", message="Insufficient account balance"),  # sub2api#890
    "no credit, a text": Case("no_credit", json_body({"error": "Insufficient balance", "requiredBalance": 0.0035, "status": 402}), 402),  # Psycheros#44
    "no credit of MiniMax in a 200": flat("no_credit", 200, base_resp={"status_code": 1008, "status_msg": "insufficient balance"}),
    "wrong key in an array": Case("unauthorized", json_body([{"error": {"code": 400, "message": "API key not valid.", "status": "INVALID_ARGUMENT", "details": [{"reason": "API_KEY_INVALID"}]}}]), 400),
    "wrong key in another field": Case("unauthorized", json_body({"problem": {"code": "API_KEY_INVALID", "detail": "no such key"}}), 400),
    "wrong key in a text": error("unauthorized", 400, code=400, status="Bad Request", message='{"error": {"code": 400, "details": [{"reason": "API_KEY_INVALID"}]}}'),  # continue#10290
    "wrong key of Cloudflare": flat("unauthorized", 401, result=None, success=False, errors=[{"code": 10000, "message": "Authentication error"}]),  # opencode#32051
    "wrong key, detail": flat("unauthorized", 401, detail="Unauthorized"),  # OmniRoute#7638
    "unknown model of Ark": error("unknown_model", 400, code="InvalidEndpointOrModel.NotFound", message="m"),
    "codes and texts by other names": flat("unknown_model", 400, fault="no engine of that name", kind="model-not-found"),
    # Prose decides nothing
    "credit in prose": flat("rejected", 400, type="error", error={"type": "invalid_request_error", "message": "Your credit balance is too low to access the API."}),  # claude-code#66314
    "wrong key in prose": flat("rejected", 400, code="Client specified an invalid argument", error="Incorrect API key provided: gs***tF."),  # continue#10161
    "unknown model in prose": flat("rejected", 422, detail="422: The model gpt-5-gibberish does not exist."),  # openai-node#1734
    "permission of one prompt": flat("forbidden", 403, code="permission-denied", error="Content violates usage guidelines. "),  # sub2api#5359
    "context length": flat("rejected", 400, object="error", message="This model's maximum context length is 2048 tokens. Please reduce the length of the messages.", type="BadRequestError", param=None, code=400),  # vllm#12886
    "certificate behind the gateway": error("server", 500, code="500", message="litellm.APIError: [SSL: CERTIFICATE_VERIFY_FAILED] self-signed certificate"),  # litellm#9848
    # A filter's, in further shapes
    "prompt filter in another field": Case("refused", json_body({"fault": {"code": "content_filter", "message": "no"}}), 400),
    "prompt filter of Azure": error("refused", 400, param="prompt", code="content_filter", type=None, status=400, message="The response was filtered", innererror={"code": "ResponsibleAIPolicyViolation"}),  # helm#3327
    "prompt filter, other spelling": error("refused", 400, param="prompt", code="content_filter", message="m", inner_error={"content_filter_results": {"jailbreak": {"filtered": True}}}),  # browser-use#262
    "DashScope, native": flat("refused", 400, status_code=400, code="DataInspectionFailed", message="Input data may contain inappropriate content."),  # Qwen#938
    "Zhipu": error("refused", 400, code="1301", message="m"),
    "MiniMax in a 200": flat("refused", 200, base_resp={"status_code": 1027, "status_msg": "output new_sensitive"}),
    "Moonshot": error("refused", 400, type="content_filter", message="The request was rejected because it was considered high risk"),
}
# fmt: on

TWICE = (
    "no_answer",
    "malformed",
    "reasoning_only",
    "stop_reason:other",
    "stop_reason:language",
    "stop_reason:tool_calls",
)
"""Kinds of which a completion without an answer is tried twice, and does not count towards the
failures that stop a model.
"""


def served(case: Case, text: str = "") -> Fault:
    """Return what has the loopback server give a reply to requests that hold a text."""
    match = Match(contains=text)
    return Fault(
        action="body",
        status=case.status,
        body=case.body,
        headers=dict(case.headers),
        match=match,
    )


def replying() -> LoopbackServer:
    """Serve each case to the prompt `<its name>, in between`, and a good answer to any other."""
    names = sorted(CASES, key=len, reverse=True)  # one may end as another does
    cases = [served(CASES[name], f"{name}, in between") for name in names]
    return LoopbackServer(faults=[*cases, served(CASES["text"])])
