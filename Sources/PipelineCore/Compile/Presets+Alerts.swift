extension Preset {
  static let slack = Preset(
    "slack", "Posts events to a channel of Slack by an incoming webhook.",
    #"""
    templates:
      slack:
        description: A message for each event. Slack takes about one a second and says when to go on, which is obeyed.
        parameters:
          url: { type: template, description: "The address of the webhook, which is a secret." }
          message: { type: expression, default: optional.try(string(event)).orValue(toJson(event)), description: "The text of the message." }
        sink:
          http: { url: $(url), body: { text: $(message) } }
    """#)

  static let ntfy = Preset(
    "ntfy", "Sends events as notifications by ntfy.sh or a server of your own.",
    #"""
    templates:
      ntfy:
        description: A notification for each event, sent in ntfy's JSON form.
        parameters:
          url: { type: text, default: "https://ntfy.sh", description: "The server." }
          topic: { type: text, description: "The topic that devices subscribe to; who knows it can read it." }
          message: { type: expression, default: optional.try(string(event)).orValue(toJson(event)), description: "The text." }
          title: { type: expression?, description: "The title." }
          priority: { type: expression?, description: "A number from 1, the least, to 5." }
          tags: { type: expression?, description: "A list of tags and names of emojis, such as ['warning']." }
          auth: { type: mapping?, description: "As of the sink http." }
        sink:
          http:
            url: $(url)
            body: { topic: "'$(topic)'", message: $(message), title: $(title), priority: $(priority), tags: $(tags) }
            auth: $(auth)
    """#)

  static let telegram = Preset(
    "telegram", "Sends events as messages of a Telegram bot.",
    #"""
    templates:
      telegram:
        description: |
          A message for each event. Telegram takes about one a second for a chat, and says in its answer when to go on,
          which is obeyed. A message that it refuses with 400 (a chat that is not there, more than 4096 characters,
          broken markup) goes to the errors output with Telegram's description.
        parameters:
          url: { type: text, default: "https://api.telegram.org", description: "The server of the Bot API." }
          token: { type: text, description: "The token of the bot, a secret." }
          chat: { type: expression, description: "The chat: its number, or '@name' of a channel." }
          text: { type: expression, default: optional.try(string(event)).orValue(toJson(event)), description: "The text, at most 4096 characters." }
          parseMode: { type: "expression?", description: "'MarkdownV2' or 'HTML'; by default the text is plain." }
          silent: { type: "expression?", description: "Whether the notification is silent." }
          thread: { type: "expression?", description: "The number of the topic in a forum." }
        sink:
          http:
            url: $(url)/bot$(token)/sendMessage
            body:
              chat_id: $(chat)
              text: $(text)
              parse_mode: $(parseMode)
              disable_notification: $(silent)
              message_thread_id: $(thread)
            retry: { after: response.body.parameters.retry_after }
    """#)

  static let pagerduty = Preset(
    "pagerduty", "Triggers, acknowledges and resolves incidents of PagerDuty.",
    #"""
    templates:
      pagerduty:
        description: |
          PagerDuty's Events API v2: each event is an action. 'trigger' opens an incident, and further ones with the same
          dedupKey belong to it until 'resolve' closes it. PagerDuty answers 429 where it gets too many, and the event is
          sent again; messages refused with 400 go to the errors output with the reasons.
        parameters:
          url: { type: text, default: "https://events.pagerduty.com", description: "https://events.eu.pagerduty.com in Europe." }
          key: { type: text, description: "The integration key, a secret." }
          dedupKey: { type: expression, description: "The identifier of the incident, such as event.host + '/' + event.check." }
          action: { type: expression, default: "'trigger'", description: "'trigger', 'acknowledge' or 'resolve'." }
          summary: { type: expression, default: optional.try(string(event)).orValue(toJson(event)), description: "A description of the event, in one line." }
          source: { type: expression, description: "The affected system, such as event.host." }
          severity: { type: expression, default: "'error'", description: "'critical', 'error', 'warning' or 'info'." }
          time: { type: expression, default: meta.time, description: "When it happened, a timestamp." }
          component: { type: "expression?", description: "The affected part of the source." }
          group: { type: "expression?", description: "The group of parts." }
          class: { type: "expression?", description: "The kind of event." }
          details: { type: "any", default: event, description: "A map to be shown: an expression, or a mapping of expressions." }
        sink:
          http:
            url: $(url)/v2/enqueue
            body:
              routing_key: "'$(key)'"
              event_action: $(action)
              dedup_key: string($(dedupKey))
              payload:
                summary: $(summary)
                source: $(source)
                severity: $(severity)
                timestamp: formatTime($(time), 'rfc3339')
                component: $(component)
                group: $(group)
                class: $(class)
                custom_details: $(details)
    """#)
}
