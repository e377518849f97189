"""The OpenAI SDK through waltz: only the address changes.  pip install openai"""

import os

from openai import OpenAI

url = os.environ.get("WALTZ_URL", "http://127.0.0.1:8787")
client = OpenAI(base_url=f"{url}/v1", api_key=os.environ.get("WALTZ_API_KEY", "none-needed-on-this-machine"))

question = {"role": "user", "content": "How do I kill a process in Linux?"}
answer = client.chat.completions.create(model=os.environ.get("MODEL", "mock"), messages=[question])

print(answer.choices[0].message.content)
print("waltz:", answer.model_extra["waltz"]["decision"])
